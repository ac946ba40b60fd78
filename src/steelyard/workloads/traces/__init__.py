"""Recorded execution traces as workloads: the recorded calls are made again, in order, on tensors of the recorded shapes."""
