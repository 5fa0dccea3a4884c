"""Asks an HTTP service for the customer of each order, with many requests at once.

The service is the one at CUSTOMERS_URL: `GET /customers/7` returns JSON, such as {"name": "Ann"}. To try it without one,
leave CUSTOMERS_URL out. Orders are read from `customer-orders`, such as {"order": 1, "customer": 7}, and written to
`enriched-orders`. A customer who cannot be found in time is left open.

    STREAMRT_BROKER_ADDRESS=localhost:9092 CUSTOMERS_URL=http://localhost:8000 python examples/enriched_orders.py
"""

import asyncio
import json
import os
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from streamrt import Application, Retry

NAMES = ("Ann", "Bob", "Eve")


async def customer_of(order: dict[str, Any]) -> dict[str, Any]:
    """Return the order with its customer."""
    url = os.environ.get("CUSTOMERS_URL")
    if url is None:
        await asyncio.sleep(0.001)
        return {**order, "name": NAMES[order["customer"] % len(NAMES)]}
    return {**order, "name": (await get(f"{url}/customers/{order['customer']}"))["name"]}


async def get(url: str) -> dict[str, Any]:
    """Return the JSON at a URL. A program would use a library such as httpx or aiohttp."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    try:
        writer.write(f"GET {parts.path} HTTP/1.0\r\nHost: {parts.hostname}\r\n\r\n".encode())
        await writer.drain()
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    if b" 200 " not in head.splitlines()[0]:
        raise ConnectionError(f"{url}: {head.splitlines()[0].decode()}")
    found: dict[str, Any] = json.loads(body)
    return found


def left_open(order: dict[str, Any]) -> dict[str, Any]:
    """Return the order without a customer."""
    return {**order, "name": None}


def build(app: Application) -> None:
    """Add topics and dataframe of this example to an application."""
    orders = app.topic("customer-orders", key_deserializer="str", key_serializer="str")
    enriched = app.topic("enriched-orders", key_deserializer="str", key_serializer="str")

    sdf = app.dataframe(orders)
    sdf = sdf.apply_async(
        customer_of,
        timeout=timedelta(seconds=2),
        capacity=100,
        ordered=False,
        retry=Retry(3, backoff=0.1, multiplier=2.0, on_error=OSError),
        on_timeout=left_open,
    )
    sdf.to_topic(enriched)


if __name__ == "__main__":
    app = Application(consumer_group="enriched-orders", auto_offset_reset="earliest")
    build(app)
    app.run()
