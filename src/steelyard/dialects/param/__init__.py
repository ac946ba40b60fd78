"""PARAM's compute benchmark: its config grammar read whole, its flags taken, and its output lines written."""
