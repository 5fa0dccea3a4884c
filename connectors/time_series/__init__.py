"""Connectors for InfluxDB and TDengine."""
