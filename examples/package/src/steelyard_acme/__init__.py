"""What Acme measures."""
