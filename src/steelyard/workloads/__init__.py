"""Built-in workloads; every module below is searched for them."""
