"""What can be weighed; every module below is searched for workloads."""
