"""Exceptions of Kafka's clients, under their names in Quix Streams."""

from streamrt.errors import ConfigurationError as InvalidProducerConfigError
from streamrt.errors import ConsumerError as KafkaConsumerException
from streamrt.errors import KafkaBrokerUnavailableError
from streamrt.errors import ProducerError as KafkaProducerDeliveryError
from streamrt.errors import StreamRTError as BaseKafkaException

__all__ = [
    "BaseKafkaException",
    "InvalidProducerConfigError",
    "KafkaBrokerUnavailableError",
    "KafkaConsumerException",
    "KafkaProducerDeliveryError",
]
