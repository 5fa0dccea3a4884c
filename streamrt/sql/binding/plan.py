"""All kinds of plans, for what looks at plans as a whole."""

from streamrt.sql.binding.group_plans import (
    Aggregate,
    Call,
    Distinct,
    SessionAggregate,
    Top,
    WindowAggregate,
    record_key,
)
from streamrt.sql.binding.join_plans import AsOfJoin, IntervalJoin, Join, JoinHow, SetOperation, Union
from streamrt.sql.binding.over_plans import FramedCall, OverStream, OverTable
from streamrt.sql.binding.row_plans import (
    Expand,
    Field,
    Filter,
    Key,
    Plan,
    Project,
    Scan,
    Values,
    describe_plan,
    walk_plan,
)

__all__ = [
    "Aggregate",
    "AsOfJoin",
    "Call",
    "Distinct",
    "Expand",
    "Field",
    "Filter",
    "FramedCall",
    "IntervalJoin",
    "Join",
    "JoinHow",
    "Key",
    "OverStream",
    "OverTable",
    "Plan",
    "Project",
    "Scan",
    "SessionAggregate",
    "SetOperation",
    "Top",
    "Union",
    "Values",
    "WindowAggregate",
    "describe_plan",
    "record_key",
    "walk_plan",
]
