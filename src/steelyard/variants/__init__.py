"""Ways of running a task, one file per family."""
