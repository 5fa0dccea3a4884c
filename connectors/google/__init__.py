"""Connectors for Google Cloud: Pub/Sub and BigQuery."""
