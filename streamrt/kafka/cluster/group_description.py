"""Describes a group of the protocol `consumer`, in its own process: `python -m streamrt.kafka.cluster.group_description`.

librdkafka 2.16 ends the process if the coordinator goes away during this request. The order comes from the standard input,
since it holds secrets; the answer goes to the standard output.
"""

import json
import subprocess
import sys
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from streamrt.errors import ConfigurationError
from streamrt.kafka.connection import ConnectionConfig

__all__ = ["describe_apart"]

_START_S = 30.0


def describe_apart(connection: ConnectionConfig, group: str, timeout: float) -> list[dict[str, Any]]:
    """Return the members of a group of the protocol `consumer`.

    Args:
        connection: connection to the brokers.
        group: name of the group.
        timeout: seconds to wait for the brokers.

    Returns:
        For each member its id, client id, host, and partitions as pairs.

    Raises:
        ConfigurationError: if the connection has an `oauth_cb`, which cannot be sent to the other process.
        KafkaException: if the brokers refuse or do not answer in time.
    """
    if connection.oauth_cb is not None:
        raise ConfigurationError(
            f"the members of group {group} cannot be read with oauth_cb: the group has the protocol 'consumer', so another "
            "process asks for them, and a Python function cannot be sent there; use sasl_oauthbearer_method='oidc' with "
            "client id, secret and token endpoint"
        )
    order = {"connection": connection.to_secret_json(), "group": group, "timeout": timeout}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "streamrt.kafka.cluster.group_description"],
            input=json.dumps(order),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=timeout + _START_S,
            check=False,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, json.JSONDecodeError):
        # The process has ended in the middle.
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "the coordinator went away")) from None
    if "code" in answer:
        raise KafkaException(KafkaError(answer["code"], answer["reason"]))
    members: list[dict[str, Any]] = answer["members"]
    return members


def _describe_order(order: dict[str, Any]) -> dict[str, Any]:
    connection = ConnectionConfig.from_secret_json(order["connection"])
    client = AdminClient({**connection.as_librdkafka_dict(), "log_level": 0})
    try:
        futures = client.describe_consumer_groups([order["group"]], request_timeout=order["timeout"])
        found = futures[order["group"]].result(order["timeout"] + 1)
    except KafkaException as error:
        return {"code": error.args[0].code(), "reason": error.args[0].str()}
    except TimeoutError:
        return {"code": KafkaError._TIMED_OUT, "reason": "no answer in time"}
    return {
        "members": [
            {
                "member_id": member.member_id or "",
                "client_id": member.client_id or "",
                "host": (member.host or "").lstrip("/"),
                "partitions": [[each.topic, each.partition] for each in member.assignment.topic_partitions],
            }
            for member in found.members
        ]
    }


if __name__ == "__main__":
    json.dump(_describe_order(json.loads(sys.stdin.read())), sys.stdout)
