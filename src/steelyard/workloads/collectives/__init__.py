"""Communication between the ranks of a case."""
