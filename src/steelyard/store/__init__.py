"""Results on disk: append-only runs, raw samples, a rebuildable index."""
