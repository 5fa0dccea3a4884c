"""What the driver does beside Spark: checks at the start, event time, progress, sources, the state directory."""
