"""Errors of the source of Google Cloud Pub/Sub."""

from streamrt.connectors.sources.pubsub import PubSubSubscriptionNotFound

__all__ = ["PubSubSubscriptionNotFound"]
