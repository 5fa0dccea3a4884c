"""Random expressions of SQL, over the columns of `tests.sql_expressions`."""

import random
from collections.abc import Callable

__all__ = ["make_tree"]

_LEAVES = {
    "int": ["i", "j", "n", "t", "s", "0", "1", "-3", "7", "cast(null as int)"],
    "big": ["b", "c", "i", "5000000000", "cast(null as bigint)"],
    "double": ["d", "e", "x", "0.5D", "-2.0D", "double('NaN')"],
    "decimal": ["p", "u", "1.5", "0.01", "n"],
    "text": ["v", "k", "w", "'a'", "''", "'Hello'", "cast(null as string)"],
    "date": ["f", "g", "date '2024-02-29'"],
    "moment": ["m", "o", "timestamp '1969-12-31 23:59:59.5'"],
    "bool": ["h", "hh", "true", "false", "cast(null as boolean)"],
}

_NODES = {
    "int": """
        ({int} + {int})
        ({int} - {int})
        ({int} * {int})
        ({int} % 7)
        case when {bool} then {int} else {int} end
        coalesce({int}, {int})
        length({text})
        year({date})
        datediff({date}, {date})
        greatest({int}, {int})
        nullif({int}, {int})
        if({bool}, {int}, {int})
        instr({text}, {text})
        hour({moment})
        abs({int})
        try_cast({text} as int)
        pmod({int}, 5)
        aggregate(l, 0, (a, x) -> a + coalesce(x, {int}) % 9)
        element_at(transform(array({int}, {int}), (x, i) -> x % 9 + i), 2)
    """,
    "big": """
        ({big} + {int})
        ({big} - {big})
        ({big} div 3)
        cast({int} as bigint)
        coalesce({big}, {int})
        try_multiply({big}, {big})
    """,
    "double": """
        ({double} + {double})
        ({double} * {double})
        ({int} / 4)
        cast({int} as double)
        round({double}, 2)
        sqrt({double})
        case when {bool} then {double} end
        nanvl({double}, {double})
        least({double}, {double})
        try_divide({double}, {double})
    """,
    "decimal": """
        ({decimal} + {decimal})
        ({decimal} - {decimal})
        ({decimal} * 0.5)
        ({decimal} / 3)
        round({decimal}, 1)
        coalesce({decimal}, {decimal})
        if({bool}, {decimal}, {decimal})
        cast({int} as decimal(12, 2))
    """,
    "text": """
        concat({text}, {text})
        upper({text})
        substring({text}, 2, 3)
        trim({text})
        replace({text}, 'a', {text})
        cast({int} as string)
        cast({date} as string)
        case when {bool} then {text} else {text} end
        coalesce({text}, 'none')
        lpad({text}, 5, '*')
        concat_ws('-', {text}, {text})
        cast({bool} as string)
        nullif({text}, {text})
    """,
    "date": """
        date_add({date}, n)
        last_day({date})
        coalesce({date}, {date})
        cast({moment} as date)
        add_months({date}, n)
        trunc({date}, 'MM')
    """,
    "moment": """
        ({moment} + interval '1' hour)
        cast({date} as timestamp)
        if({bool}, {moment}, {moment})
        greatest({moment}, {moment})
    """,
    "bool": """
        ({bool} and {bool})
        ({bool} or {bool})
        (not {bool})
        ({int} < {int})
        ({int} = {big})
        ({double} >= {double})
        ({double} = {double})
        ({text} < {text})
        ({text} like '%a%')
        ({date} between {date} and {date})
        ({int} is null)
        ({bool} is not true)
        (({bool} is true) and ({int} is not null))
        (({bool} is true) or ({bool} is false))
        ({int} in (0, 1, null))
        ({int} <=> {int})
        ({decimal} > {decimal})
        ({decimal} = {int})
        ({moment} < {date})
        contains({text}, {text})
        ({text} in ('a', 'abc'))
        ({double} is distinct from {double})
        exists(array({int}, {int}), x -> x > {int})
        forall(filter(l, x -> x <> 1), x -> x < {int})
    """,
}
_TEMPLATES = {kind: [line.strip() for line in lines.strip().splitlines()] for kind, lines in _NODES.items()}


def make_tree(dice: random.Random, depth: int, kind: str | None = None) -> str:
    """Return an expression of a kind, with so many levels at most."""
    chosen = kind or dice.choice(list(_TEMPLATES))
    if depth == 0 or dice.random() < 0.1:
        return dice.choice(_LEAVES[chosen])
    return _fill(dice.choice(_TEMPLATES[chosen]), lambda inner: make_tree(dice, depth - 1, inner))


def _fill(template: str, make: Callable[[str], str]) -> str:
    before, *parts = template.split("{")
    filled = before
    for part in parts:
        kind, _, rest = part.partition("}")
        filled += make(kind) + rest
    return filled
