"""Sinks for other systems; their libraries are extras."""
