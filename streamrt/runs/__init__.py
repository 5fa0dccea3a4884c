"""Runs of applications: what the driver does wherever tasks run, and the resident runner. Nothing here needs Spark."""
