"""Our own figures of execution traces: what a replay costs beside its calls, and how close it is to what was recorded."""
