"""Cuts text into words: one record in, any number of records out.

Reads `texts`, whose values are plain text, and writes each word to `words`, with the word as key.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/words.py
"""

import re
from collections.abc import Iterator

from streamrt import Application, StreamingDataFrame

WORD = re.compile(r"\w+")


def words(text: str) -> Iterator[str]:
    """Yield the words of a text in lower case."""
    for match in WORD.finditer(text):
        yield match.group().lower()


def build(app: Application) -> StreamingDataFrame:
    """Add the dataframe of this example to an application."""
    texts = app.topic("texts", value_deserializer="str")
    output = app.topic(
        "words", value_deserializer="str", value_serializer="str", key_deserializer="str", key_serializer="str"
    )

    sdf = app.dataframe(texts)
    # A record without a value is a tombstone: the text was deleted and has no words.
    sdf = sdf.filter(lambda text: text is not None)
    sdf = sdf.apply(words, expand=True)
    return sdf.to_topic(output, key=lambda word: word)


if __name__ == "__main__":
    app = Application(consumer_group="words", auto_offset_reset="earliest")
    build(app)
    app.run()
