"""Conductor and worker: plan, launch, supervise."""
