"""The commands, each loaded only when called."""
