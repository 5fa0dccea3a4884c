"""Spark's JVM and session: started, lent, and ended."""
