"""What an application stores with its committed offsets: which state belongs to them.

Kafka keeps a short text with each committed offset. Ours names the stores of each source topic, and of source topics that
were merged under their sorted names, joined by `--`; each store has the id of its changelog topic, so that a changelog that
was deleted, or deleted and made anew, is noticed before anything is processed without its state.
"""

import json
from collections.abc import Mapping

from streamrt.runtime.homes import StateSettings

_FORMAT = 1
_LONGEST = 4_000
"""Kafka takes 4,096 bytes by default (`offset.metadata.max.bytes`)."""


def commit_metadata(state: StateSettings | None) -> str | None:
    """Return what is stored with committed offsets; None where there is no state.

    Example:
        >>> from pathlib import Path
        >>> from streamrt.runtime.homes import ChangelogSettings, SourceState
        >>> log = ChangelogSettings("changelog__shop--orders--default", "x1")
        >>> commit_metadata(StateSettings("shop", Path("s"), None, {"orders": SourceState("o1", 2, {"default": log})}))
        '{"streamrt":1,"stores":{"orders":{"default":"x1"}}}'
    """
    if state is None or not state.sources:
        return None
    stores = {
        topic: {store: None if changelog is None else changelog.id for store, changelog in source.stores.items()}
        for topic, source in sorted(state.sources.items())
    }
    text = json.dumps({"streamrt": _FORMAT, "stores": stores}, separators=(",", ":"))
    if len(text) > _LONGEST:
        # Better a word about fewer stores than a refused commit; what is left out is checked by its position alone.
        text = json.dumps({"streamrt": _FORMAT, "stores": {topic: {} for topic in stores}}, separators=(",", ":"))
    return text if len(text) <= _LONGEST else None


def stores_in(metadata: str) -> Mapping[str, Mapping[str, str | None]]:
    """Return the stores that a committed offset tells of, with the ids of their changelogs, by source topic or topics.

    Args:
        metadata: the text; anything that is not ours tells of none.

    Example:
        >>> stores_in('{"streamrt":1,"stores":{"orders":{"default":"x1"}}}')
        {'orders': {'default': 'x1'}}
        >>> stores_in("by hand")
        {}
    """
    try:
        document = json.loads(metadata)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict) or "streamrt" not in document:
        return {}
    topics = document.get("stores")
    if not isinstance(topics, dict):
        return {}
    return {
        topic: {store: name for store, name in stores.items() if name is None or isinstance(name, str)}
        for topic, stores in topics.items()
        if isinstance(stores, dict)
    }
