"""Exporters that write a framework's models to disk as programs, one function for each kind of program."""
