"""What callbacks of errors look like: what `streamrt.runtime.spec` has of them."""

from streamrt.runtime.spec import ConsumerErrorCallback, ProcessingErrorCallback, ProducerErrorCallback

__all__ = ["ConsumerErrorCallback", "ProcessingErrorCallback", "ProducerErrorCallback"]
