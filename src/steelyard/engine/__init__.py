"""Conductor and worker: plan, launch and supervise runs."""
