"""Event time: watermarks and idle partitions, barriers through exchanges, cuts for merges, and the end of time."""
