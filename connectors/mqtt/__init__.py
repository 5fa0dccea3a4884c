"""Source and sink for MQTT."""
