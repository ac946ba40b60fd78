"""Models as programs on disk: what each framework can be exported as, and how; each way is one function."""
