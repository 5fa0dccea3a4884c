"""A sink of Google Cloud Pub/Sub."""

from streamrt.connectors.google.pubsub_sink import PubSubSink, PubSubTopicNotFoundError

__all__ = ["PubSubSink", "PubSubTopicNotFoundError"]
