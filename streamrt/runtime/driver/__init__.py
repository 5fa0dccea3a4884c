"""The driver without Spark: checks at the start, event time, progress, sources, the state directory."""
