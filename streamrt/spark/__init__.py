"""The runner for production: Spark Structured Streaming."""
