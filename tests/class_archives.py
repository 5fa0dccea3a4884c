"""Has the archives of classes made with which Kafka and Spark start faster (see `streamrt.jvm.archive`).

A test run starts dozens of JVMs. `python -m tests.class_archives` makes what is missing in `STREAMRT_CACHE_DIR`.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyspark import SparkContext

from streamrt.config import ProcessingMode
from streamrt.jvm.archive import class_archive
from streamrt.jvm.jars import fetch_jars
from streamrt.jvm.java import find_java
from streamrt.spark.gateway import Jvm, archive_kind, spark_class_path
from streamrt.spark.session import close_session
from streamrt.testing import EmbeddedKafka
from tests.support import PROCESSING_MODES, Kafka


def work(kafka: Kafka, mode: ProcessingMode) -> None:
    """Run a small application that needs most of what others need, too."""
    left, right, middle, target = (kafka.topic(name, 2) for name in ("left", "right", "middle", "out"))
    for topic in (left, right):
        kafka.produce(topic, ["x"] * 10, key=None)
    app = kafka.app(processing_mode=mode, processing_guarantee="exactly-once")
    frames = [app.dataframe(app.topic(topic)) for topic in (left, right)]
    frames[0].concat(frames[1]).to_topic(app.topic(middle))
    sizes = app.dataframe(app.topic(middle)).group_by(len, name="size").tumbling_window(1_000).count().final()
    # A window closes where the records lie on both sides of a full second.
    sizes.to_topic(app.topic(target, key_serializer="int"))
    assert app.run(timeout=3, collect=False) is not None


def main() -> None:
    """Make the archives that are missing."""
    java = find_java()
    kinds: dict[str, Sequence[Path | str]] = {"kafka": fetch_jars("kafka")}
    for mode in PROCESSING_MODES:
        kinds[archive_kind(mode)] = spark_class_path(fetch_jars("spark"))

    def missing() -> list[str]:
        found = {kind: class_archive(kind, java, class_path, writes=False) for kind, class_path in kinds.items()}
        return [kind for kind, archive in found.items() if not any(f"{kind}-" in option for option in archive.options)]

    if not missing():
        return
    for kind in missing():
        # The second JVM of a kind is the one that writes the archive.
        class_archive(kind, java, kinds[kind])
    print("Preparing Java, so that it starts faster in tests; this takes a minute", flush=True)
    with tempfile.TemporaryDirectory() as state, EmbeddedKafka() as broker:
        kafka = Kafka(broker.bootstrap_servers, Path(state))
        for mode in PROCESSING_MODES:
            # The JVM of the mode that comes first serves both in most lanes, so its archive has the classes of both.
            for each in (mode, *(other for other in PROCESSING_MODES if other != mode)):
                work(kafka, each)
            jvm: Jvm = vars(SparkContext._gateway)["own_jvm"]
            close_session()
            # It writes its archive now.
            jvm.process.wait()
    if missing():
        print(f"Java starts without its archives of {', '.join(missing())}", flush=True)


if __name__ == "__main__":
    main()
