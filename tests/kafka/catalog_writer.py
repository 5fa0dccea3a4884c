"""A program that increments a number in a catalogue, and notes each success: `catalog_writer.py BROKER TOPIC FILE COUNT`."""

import json
import sys
from pathlib import Path

from streamrt.errors import CatalogConflictError
from streamrt.tables import KafkaCatalog
from streamrt.tables.access.kafka_links import KafkaLinks

KEY = "table/shop.number"


def main(broker: str, topic: str, file: str, count: int) -> None:
    store = KafkaCatalog(topic)
    store.connect(KafkaLinks(broker), 60.0)
    done = 0
    with Path(file).open("a") as log:
        while done < count:
            found = store.get(KEY)
            number = 0 if found is None else json.loads(found.value)["n"]
            try:
                store.put(KEY, json.dumps({"n": number + 1}).encode(), None if found is None else found.version)
            except CatalogConflictError:
                continue
            done += 1
            log.write(f"{number + 1}\n")
            log.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
