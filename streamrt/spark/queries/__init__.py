"""Queries of present rows that Spark computes, for scans beyond the memory of a process."""
