"""The referee."""
