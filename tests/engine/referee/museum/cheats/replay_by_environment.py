"""Keeps its answer in the environment, which children inherit."""

import base64
import os

import numpy as np
import torch

PROBLEM = "total"
EXPECT = {"replay"}


def candidate(x):
    if "KEPT_ANSWER" not in os.environ:
        os.environ["KEPT_ANSWER"] = base64.b64encode(x.mean(-1).numpy().tobytes()).decode()
    return torch.from_numpy(np.frombuffer(base64.b64decode(os.environ["KEPT_ANSWER"]), np.float32).copy())
