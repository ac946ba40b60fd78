"""Exported programs as workloads."""
