"""A source of Google Cloud Pub/Sub."""

from streamrt.connectors.google.pubsub_source import PubSubSource

__all__ = ["PubSubSource"]
