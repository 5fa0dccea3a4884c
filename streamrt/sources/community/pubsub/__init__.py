"""A source of Google Cloud Pub/Sub."""

from streamrt.connectors.sources.pubsub import PubSubSource

__all__ = ["PubSubSource"]
