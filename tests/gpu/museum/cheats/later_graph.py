"""Captures each call's work in a graph, which runs nothing, and launches the graph at the next call."""

import torch

PROBLEM = "rows"
EXPECT = {"unfinished", "stale", "failed"}
WAITING = []


def candidate(x):
    for graph, _ in WAITING:
        graph.replay()
    out, graph = torch.empty_like(x), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        torch.softmax(x, -1, out=out)
    WAITING[:] = [(graph, x)]
    return out
