"""Keeps its answer in the environment, which children inherit."""

import base64
import os

import numpy as np
import torch

PROBLEM = "product"
EXPECT = {"replay"}


def candidate(a, b):
    if "KEPT_ANSWER" not in os.environ:
        os.environ["KEPT_ANSWER"] = base64.b64encode((a @ b).numpy().tobytes()).decode()
    return torch.from_numpy(np.frombuffer(base64.b64decode(os.environ["KEPT_ANSWER"]), np.float32).reshape(160, 160).copy())
