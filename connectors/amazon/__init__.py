"""Connectors for Amazon Web Services: Kinesis and SQS."""
