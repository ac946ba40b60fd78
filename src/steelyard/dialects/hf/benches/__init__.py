"""The built-in benches: ordinary bench files that every run has unless the user's folder has a file of the same name."""
