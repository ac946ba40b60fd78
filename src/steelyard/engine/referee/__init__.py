"""The referee: a candidate judged against a reference by processes that it does not share."""
