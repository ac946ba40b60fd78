"""Captures its first call as a graph and replays that, with the first call's inputs."""

import torch

PROBLEM = "rows"
EXPECT = {"replay"}
KEPT = {}


def candidate(x):
    if not KEPT:
        KEPT["x"], KEPT["graph"] = x.clone(), torch.cuda.CUDAGraph()
        torch.softmax(KEPT["x"], -1)
        torch.cuda.synchronize()
        with torch.cuda.graph(KEPT["graph"]):
            KEPT["out"] = torch.softmax(KEPT["x"], -1)
    KEPT["graph"].replay()
    return KEPT["out"].clone()
