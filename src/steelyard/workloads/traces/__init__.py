"""Recorded execution traces as workloads: what was called is called again, in order, on tensors of the recorded shapes."""
