"""Connectors for HTTP and WebSockets."""
