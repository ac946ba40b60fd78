"""Variants, which are ways to run a task, one file per family."""
