"""Computes half on another stream and joins it by events."""

import torch

PROBLEM = "rows"
STREAM = torch.cuda.Stream()


def candidate(x):
    out, main = torch.empty_like(x), torch.cuda.current_stream()
    STREAM.wait_stream(main)
    with torch.cuda.stream(STREAM):
        torch.softmax(x[:512], -1, out=out[:512])
    torch.softmax(x[512:], -1, out=out[512:])
    main.wait_stream(STREAM)
    return out
