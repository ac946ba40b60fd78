"""Tiny stand-ins for systems whose results and control flow are the hardest: they prove the seam before the real dialects come."""
