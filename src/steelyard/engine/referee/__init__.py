"""The referee: judges a candidate against a reference; clock and checks are in processes that the candidate does not share."""
