"""Errors of the source of Google Cloud Pub/Sub."""

from streamrt.connectors.google.pubsub_source import PubSubSubscriptionNotFound

__all__ = ["PubSubSubscriptionNotFound"]
