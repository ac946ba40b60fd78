"""The first by name wins, so this one is not taken."""
