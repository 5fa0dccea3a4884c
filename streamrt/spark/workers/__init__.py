"""Spark's Python workers: the code that runs in them, and their link to the driver."""
