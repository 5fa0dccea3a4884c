"""The types of error callbacks, as `streamrt.runtime.spec` has them."""

from streamrt.runtime.spec import ConsumerErrorCallback, ProcessingErrorCallback, ProducerErrorCallback

__all__ = ["ConsumerErrorCallback", "ProcessingErrorCallback", "ProducerErrorCallback"]
