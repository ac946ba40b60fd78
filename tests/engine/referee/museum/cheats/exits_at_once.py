"""Ends its process with success and without any last words."""

import os

PROBLEM = "rows"
EXPECT = {"failed", "crashed"}
FIRST = "raises"


def candidate(x):
    os._exit(0)
