"""Protobuf message types that tests share, made from descriptors as a program without generated modules would."""

from functools import lru_cache
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

_BELOW = ("google/protobuf/timestamp.proto", "google/protobuf/struct.proto")


def _base() -> FileDescriptorProto:
    file = FileDescriptorProto(name="shop/base.proto", package="shop", syntax="proto3")
    colour = file.enum_type.add(name="Colour")
    for number, name in enumerate(("UNKNOWN", "RED", "BLUE")):
        colour.value.add(name=name, number=number)
    price = file.message_type.add(name="Price")
    price.field.add(name="cents", number=1, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    return file


def _order() -> FileDescriptorProto:
    file = FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    file.dependency.extend(["shop/base.proto", *_BELOW])
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    order.nested_type.add(name="Nothing")
    line = order.nested_type.add(name="Line")
    line.field.add(name="sku", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    line.field.add(name="n", number=2, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    weights = order.nested_type.add(name="WeightsEntry")
    weights.options.map_entry = True
    weights.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    weights.field.add(name="value", number=2, type=Field.TYPE_DOUBLE, label=Field.LABEL_OPTIONAL)
    fields: list[tuple[str, Any, str, bool]] = [
        ("order_id", Field.TYPE_INT64, "", False),
        ("buyer", Field.TYPE_STRING, "", False),
        ("colour", Field.TYPE_ENUM, ".shop.Colour", False),
        ("data", Field.TYPE_BYTES, "", False),
        ("total", Field.TYPE_DOUBLE, "", False),
        ("lines", Field.TYPE_MESSAGE, ".shop.Order.Line", True),
        ("price", Field.TYPE_MESSAGE, ".shop.Price", False),
        ("made_at", Field.TYPE_MESSAGE, ".google.protobuf.Timestamp", False),
        ("extra", Field.TYPE_MESSAGE, ".google.protobuf.Struct", False),
        ("weights", Field.TYPE_MESSAGE, ".shop.Order.WeightsEntry", True),
        ("parent", Field.TYPE_MESSAGE, ".shop.Order", False),
        ("numbers", Field.TYPE_SINT32, "", True),
    ]
    for number, (name, kind, type_name, repeated) in enumerate(fields, 1):
        field = order.field.add(name=name, number=number, type=kind)
        field.label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
        if type_name:
            field.type_name = type_name
    return file


@lru_cache
def pool() -> DescriptorPool:
    """Return the pool of the types below."""
    made = DescriptorPool()
    for known in (Timestamp, Struct):
        made.AddSerializedFile(known.DESCRIPTOR.file.serialized_pb)
    for file in (_base(), _order()):
        made.AddSerializedFile(file.SerializeToString())
    return made


def message_class(name: str = "shop.Order") -> Any:
    """Return the class of a type: `shop.Order`, `shop.Order.Line`, `shop.Price`."""
    return GetMessageClass(pool().FindMessageTypeByName(name))
