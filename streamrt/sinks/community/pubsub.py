"""A sink of Google Cloud Pub/Sub."""

from streamrt.connectors.sinks.pubsub import PubSubSink, PubSubTopicNotFoundError

__all__ = ["PubSubSink", "PubSubTopicNotFoundError"]
