"""Runs cases on other machines: one conductor here, a station on each host, and launchers that start stations."""
