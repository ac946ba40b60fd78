"""The power curve: how often a comparison cries wolf on equal code, and how small a real slowdown it catches, ours beside the peers'."""
