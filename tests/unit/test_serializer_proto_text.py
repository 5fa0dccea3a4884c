"""The text of .proto files. That protoc makes the same descriptors of it was checked with 64 public files."""

from typing import Any

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import DESCRIPTOR as DESCRIPTORS
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from streamrt.serializers.proto_text import NoTextError, proto_text
from tests.messages import message_class


def text(described: str) -> str:
    return proto_text(text_format.Parse(described, FileDescriptorProto()).SerializeToString())


def test_imports_maps_and_nested_types() -> None:
    lines = proto_text(message_class().DESCRIPTOR.file.serialized_pb).splitlines()
    assert lines[:6] == [
        'syntax = "proto3";',
        "package shop;",
        'import "shop/base.proto";',
        'import "google/protobuf/timestamp.proto";',
        'import "google/protobuf/struct.proto";',
        "message Other {",
    ]
    assert "  message Line {" in lines
    assert "  map<string, double> weights = 10;" in lines
    assert "  repeated .shop.Order.Line lines = 6;" in lines
    assert not [line for line in lines if "WeightsEntry" in line]


def test_what_only_proto2_has() -> None:
    described = r"""
        name: "old.proto" dependency: "a.proto" dependency: "b.proto" public_dependency: 0 weak_dependency: 1
        message_type {
          name: "M"
          field { name: "a" number: 1 label: LABEL_REQUIRED type: TYPE_INT32 }
          field { name: "b" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING default_value: "say \"x\"\n" }
          field { name: "c" number: 3 label: LABEL_OPTIONAL type: TYPE_BYTES default_value: "\\000" }
          field { name: "d" number: 4 label: LABEL_REPEATED type: TYPE_SINT64 options { packed: true deprecated: true } }
          field { name: "e_f" number: 5 label: LABEL_OPTIONAL type: TYPE_DOUBLE default_value: "inf" json_name: "other" }
          reserved_range { start: 7 end: 8 } reserved_range { start: 10 end: 536870912 } reserved_name: "gone"
        }
    """
    assert (
        text(described)
        == r"""syntax = "proto2";
import public "a.proto";
import weak "b.proto";
message M {
  reserved 7;
  reserved 10 to max;
  reserved "gone";
  required int32 a = 1;
  optional string b = 2 [default = "say \"x\"\012"];
  optional bytes c = 3 [default = "\000"];
  repeated sint64 d = 4 [packed = true, deprecated = true];
  optional double e_f = 5 [default = inf, json_name = "other"];
}
"""
    )


def test_oneofs_enums_options_and_services() -> None:
    described = """
        name: "new.proto" package: "p" syntax: "proto3" options { java_package: "org.p" optimize_for: SPEED }
        enum_type {
          name: "E" options { allow_alias: true }
          value { name: "A" number: 0 } value { name: "B" number: 0 options { deprecated: true } }
          reserved_range { start: 5 end: 6 }
        }
        message_type {
          name: "M" options { deprecated: true }
          field { name: "x" number: 1 label: LABEL_OPTIONAL type: TYPE_ENUM type_name: ".p.E" oneof_index: 0 }
          field { name: "y" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".p.M" oneof_index: 0 }
          field { name: "z" number: 3 label: LABEL_OPTIONAL type: TYPE_BOOL oneof_index: 1 proto3_optional: true }
          oneof_decl { name: "choice" } oneof_decl { name: "_z" }
        }
        service {
          name: "S"
          method { name: "Get" input_type: ".p.M" output_type: ".p.M" server_streaming: true }
          method { name: "Old" input_type: ".p.M" output_type: ".p.M" options { deprecated: true } }
        }
    """
    assert (
        text(described)
        == """syntax = "proto3";
package p;
option java_package = "org.p";
option optimize_for = SPEED;
enum E {
  option allow_alias = true;
  reserved 5 to 6;
  A = 0;
  B = 0 [deprecated = true];
}
message M {
  option deprecated = true;
  oneof choice {
    .p.E x = 1;
    .p.M y = 2;
  }
  optional bool z = 3;
}
service S {
  rpc Get (.p.M) returns (stream .p.M);
  rpc Old (.p.M) returns (.p.M) {
    option deprecated = true;
  }
}
"""
    )


def test_types_stay_in_their_order_though_maps_make_some() -> None:
    described = """
        name: "a.proto" syntax: "proto3"
        message_type {
          name: "M"
          field { name: "m" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".M.MEntry" }
          nested_type { name: "First" }
          nested_type {
            name: "MEntry" options { map_entry: true }
            field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
            field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".M.Last" }
          }
          nested_type { name: "Last" }
        }
    """
    lines = [line.strip() for line in text(described).splitlines() if line.strip() != "}"]
    assert lines[1:] == ["message M {", "message First {", "map<string, .M.Last> m = 1;", "message Last {"]


@pytest.mark.parametrize(
    "described",
    [
        'name: "a" syntax: "editions" edition: EDITION_2023',
        'name: "a" message_type { name: "M" extension_range { start: 100 end: 200 } }',
        'name: "a" extension { name: "x" number: 100 label: LABEL_OPTIONAL type: TYPE_BOOL extendee: ".M" }',
        'name: "a" message_type { field { name: "g" number: 1 label: LABEL_OPTIONAL type: TYPE_GROUP type_name: ".G" } }',
        'name: "a" message_type { name: "M" options { uninterpreted_option { identifier_value: "x" } } }',
    ],
)
def test_what_has_no_text_here_is_refused(described: str) -> None:
    with pytest.raises(NoTextError):
        text(described)


def test_options_that_nobody_knows_are_not_dropped() -> None:
    file: Any = FileDescriptorProto(name="a.proto")
    file.options.MergeFromString(b"\xfa\xff\x01\x01x")
    with pytest.raises(NoTextError, match="custom options"):
        proto_text(file.SerializeToString())
    with pytest.raises(NoTextError):
        proto_text(DESCRIPTORS.serialized_pb)
