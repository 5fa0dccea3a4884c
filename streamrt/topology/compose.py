"""Nodes to closures: one call composes a sub-topology into a single function."""

import copy
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

from streamrt.models import Headers
from streamrt.topology.graph import Topology
from streamrt.topology.node import Executor, Node, OperatorContext

_IMMUTABLE = frozenset({type(None), bool, int, float, complex, str, bytes})
# Each operator is one Python call below its parent, and user functions need room of their own.
_FRAMES_PER_NODE = 3
_FRAMES_FOR_USERS = 1_000


def compose(topology: Topology, root: Node, context: OperatorContext, leaf: Executor) -> Executor:
    """Compose `root` and everything below it into one closure.

    Records are processed one at a time and depth first: what an operator emits goes through all branches below, in the
    order in which they were declared, before the next item is looked at.

    Args:
        topology: the graph.
        root: where to start.
        context: what the operators may use.
        leaf: called with what leaves the last operator of each branch.
    """
    members = topology.subtree(root)
    needed = _FRAMES_PER_NODE * len(members) + _FRAMES_FOR_USERS
    if sys.getrecursionlimit() < needed:
        sys.setrecursionlimit(needed)
    executors: dict[int, Executor] = {}
    for node in reversed(members):
        below = [executors[child.id] for child in topology.children.get(node.id, ())]
        child = leaf if not below else below[0] if len(below) == 1 else _branch(below)
        executors[node.id] = node.operator.build(child, node, context)
    return executors[root.id]


def _branch(children: Sequence[Executor]) -> Executor:
    *others, last = children

    def run(value: Any, key: Any, timestamp: int, headers: Headers | None) -> None:
        # Every branch but the last gets a copy made before any of them ran; the last may have the original.
        copies = copier(value)
        for child in others:
            child(copies(), key, timestamp, headers)
        last(value, key, timestamp, headers)

    return run


def copier(value: Any) -> Callable[[], Any]:
    """Return a function that makes a deep copy of `value` as it is now, each time it is called.

    Example:
        >>> value = {"a": [1]}
        >>> fresh = copier(value)
        >>> value["a"].append(2)
        >>> fresh()
        {'a': [1]}
    """
    kind = type(value)
    if kind in _IMMUTABLE:
        return lambda: value
    if kind is dict and _IMMUTABLE.issuperset(map(type, value.values())):
        # Keys of a dict are hashable, and those of JSON objects are strings: a flat copy is a deep one.
        snapshot: dict[Any, Any] = value.copy()
        return snapshot.copy
    try:
        frozen = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001 - whatever pickling says, deepcopy gets its chance
        original = copy.deepcopy(value)
        return lambda: copy.deepcopy(original)
    return lambda: pickle.loads(frozen)
