"""The loop over the records of a chunk, with operators as its lines: no call for each operator of each record.

It does what `OperatorChain` does with closures, where a value is one item and no asynchronous call is in flight. The lines
go from the source to the first operator that needs a closure, or that has several operators below it.
"""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from streamrt.errors import IgnoreMessage, SchemaRegistryError
from streamrt.operators import ToTopic
from streamrt.runtime.tasks.chain.collector import OutputCollector
from streamrt.runtime.tasks.chain.record_place import RunRecords
from streamrt.state.journal import next_turn
from streamrt.topics import Topic
from streamrt.topology import InlinedCode, MergeOperator, Node, NodeClosures, SideOutput, Topology

__all__ = ["WholeRun"]

_RUN: Final = """
def run(chain, records, index, limits, load, load_key):
    collector, clock, deadline, wanted = chain.collector, chain.clock, limits.deadline, limits.outputs
    produce, waiting, effects = collector.writer.produce, collector.waiting, collector.effects
    produced = produced_bytes = 0
    try:
        for index, (raw_key, raw_value, sent_at, sent_headers) in enumerate(records, index):
            chain._index = index
{before}
            try:
                given = value = None if raw_value is None else {load}
                key = raw_key if load_key is None or raw_key is None else load_key(raw_key, sent_headers)
            except ignored:
                pass
            except registry_failed:
                raise
            except Exception as error:
                chain.skip_unread(error, again={bare})
            else:
                timestamp, headers = sent_at, sent_headers
                try:
{lines}
{after}
                except not_the_records_fault:
                    raise
                except (Exception, SystemExit) as error:
                    waiting.clear()
                    chain.skip_record(error, given, key, sent_at, sent_headers)
            if {is_over}:
                break
    finally:
        collector.produced += produced
        collector.produced_bytes += produced_bytes
    return index
"""
_BEGIN_EFFECTS: Final = """
if effects.held or effects.kept:
    effects.begin()
elif effects.entries:
    effects.entries.clear()
    effects.turn = next_turn()
"""
_END_RECORD: Final = """
if waiting:
    collector.do_waiting()
"""
_RELEASE: Final = """
if effects.held:
    effects.release()
"""
_CHECK: Final = "clock() >= deadline or collector.unfinished or (wanted is not None and collector.outputs >= wanted)"
# Reading the clock takes as long as an expression.
_CHECK_SELDOM: Final = "not index & 15 and clock() >= deadline"


@dataclass(frozen=True)
class WholeRun:
    """Makes the loop over the records of one topic.

    Args:
        topology: the operators.
        source: the source of the topic.
        closures: the closures of the nodes.
        collector: receives outputs.
        not_the_records_fault: errors of operators that do not concern their record.
    """

    topology: Topology
    source: Node
    closures: Mapping[int, NodeClosures]
    collector: OutputCollector
    not_the_records_fault: tuple[type[Exception], ...]

    @cached_property
    def with_bare_loads(self) -> RunRecords:
        """The loop for a function that loads a value without its headers."""
        return self._compile("load(raw_value)", bare=True, often=False)

    @cached_property
    def with_batches(self) -> RunRecords:
        """The loop for records some of whose values are loaded: dicts. A deserializer loads the others."""
        return self._compile(
            "raw_value if type(raw_value) is dict else load(raw_value, sent_headers)", bare=False, often=False
        )

    @cached_property
    def with_loads(self) -> RunRecords:
        """The loop for a deserializer."""
        return self._compile("load(raw_value, sent_headers)", bare=False, often=True)

    def _compile(self, load: str, *, bare: bool, often: bool) -> RunRecords:
        code = InlinedCode()
        stateful = self._add_operators(code)
        before, after = "", _END_RECORD if stateful else ""
        if self.collector.effects is not None and stateful:
            before, after = _BEGIN_EFFECTS, after + _RELEASE
        code.names |= {
            "ignored": IgnoreMessage,
            "registry_failed": SchemaRegistryError,
            "not_the_records_fault": self.not_the_records_fault,
            "next_turn": next_turn,
        }
        text = _RUN.format(
            load=load,
            before=textwrap.indent(before, " " * 12),
            lines=code.indent_lines(5),
            after=textwrap.indent(after, " " * 20),
            bare=bare,
            is_over=_CHECK if often or not code.is_plain else _CHECK_SELDOM,
        )
        run: RunRecords = code.define(text)["run"]
        return run

    def _add_operators(self, code: InlinedCode) -> bool:
        """Add the lines of the operators; return whether they may have effects other than outputs."""
        node, stateful = self.source, False
        while True:
            below, followers = self.closures[node.id].below, self.topology.children.get(node.id, ())
            if not followers and self.collector.drops_outputs:
                code.add_lines("pass")
                return stateful
            follower = followers[0] if len(followers) == 1 else None
            if follower is None or not self._add_operator(code, follower):
                code.is_plain = False
                code.add_lines(f"{code.name_object(below)}(value, key, timestamp, headers)")
                return True
            stateful = stateful or bool(follower.operator.stores())
            node = follower

    def _add_operator(self, code: InlinedCode, node: Node) -> bool:
        operator = node.operator
        code.context = self.closures[node.id].context
        # As in closures: errors find the operator by it.
        code.add_lines(f"_node = {code.name_object(node)}")
        if isinstance(operator, ToTopic):
            plain = operator.key is None and operator.partition is None
            return plain and isinstance(operator.topic, Topic) and self.collector.inline_sender(operator.topic, code)
        return not isinstance(operator, MergeOperator | SideOutput) and operator.inline(code)
