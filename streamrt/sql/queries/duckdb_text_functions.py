"""Functions of Spark on strings and bytes in DuckDB's SQL."""

import re

import pyarrow as pa
from sqlglot import exp

from streamrt.sql.expressions.coercion import STRING, describe_type
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.queries.duckdb_casts import with_name
from streamrt.sql.queries.duckdb_types import TypedText
from streamrt.sql.queries.translation import (
    Translation,
    as_integer,
    as_text,
    literal_integer,
    literal_text,
    named,
    translates,
)

__all__ = ["quote_text", "translate_pattern"]

_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_KEPT_ESCAPES = frozenset("dDwWsStnrf.^$|?*+()[]{}\\/-bB")


def quote_text(text: str) -> str:
    """Return a text as a literal of DuckDB.

    Example:
        >>> quote_text("it's")
        "'it''s'"
    """
    if "\0" in text:
        return " || chr(0) || ".join(quote_text(part) for part in text.split("\0")).join("()")
    return "'" + text.replace("'", "''") + "'"


def _not_below_zero(count: TypedText) -> str:
    # greatest() of DuckDB leaves NULL out.
    return f"CASE WHEN {count.sql} < 0 THEN 0 ELSE {count.sql} END"


def _text(c: Translation, node: exp.Expr) -> TypedText:
    return as_text(c.scalar(node), node)


@translates(exp.Concat, exp.DPipe)
def _concat(c: Translation, node: exp.Expr) -> TypedText:
    nodes = node.expressions if isinstance(node, exp.Concat) else [node.this, node.expression]
    values = [c.scalar(each) for each in nodes]
    if any(pa.types.is_list(each.dtype) for each in values):
        if len({each.dtype for each in values}) > 1:
            raise make_analysis_error(
                "the arguments of concat() have types that do not fit each other: cast them", node
            )
        return TypedText(f"({' || '.join(each.sql for each in values)})", values[0].dtype)
    texts = [as_text(value, each) for value, each in zip(values, nodes, strict=True)]
    return TypedText(f"({' || '.join(each.sql for each in texts)})", pa.string())


@translates(exp.ConcatWs)
def _concat_ws(c: Translation, node: exp.ConcatWs) -> TypedText:
    values = [_text(c, each) for each in node.expressions]
    return TypedText(f"concat_ws({', '.join(each.sql for each in values)})", pa.string())


@translates(exp.Length)
def _length(c: Translation, node: exp.Length) -> TypedText:
    value = c.scalar(node.this)
    if value.dtype == pa.binary():
        return TypedText(f"CAST(octet_length({value.sql}) AS INTEGER)", pa.int32())
    return TypedText(f"CAST(length({as_text(value, node.this).sql}) AS INTEGER)", pa.int32())


for _kind, _word in (
    # Java has two letters for it.
    (exp.Upper, "upper(replace({}, 'ß', 'SS'))"),
    (exp.Lower, "lower({})"),
    (exp.Reverse, "reverse({})"),
    (exp.MD5, "md5({})"),
    (exp.ToBase64, "base64(encode({}))"),
):

    def _change_text(c: Translation, node: exp.Func, word: str = _word) -> TypedText:
        return TypedText(word.format(_text(c, node.this).sql), pa.string())

    translates(_kind)(_change_text)


@translates(exp.Trim)
def _trim(c: Translation, node: exp.Trim) -> TypedText:
    word = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")).upper(), "trim")
    characters = node.args.get("expression")
    removed = "' '" if characters is None else _text(c, characters).sql
    return TypedText(f"{word}({_text(c, node.this).sql}, {removed})", pa.string())


@named("btrim", 1, 1)
def _btrim(c: Translation, node: exp.Anonymous, values: list[TypedText]) -> TypedText:
    return TypedText(f"trim({as_text(values[0], node).sql}, ' ')", pa.string())


@translates(exp.Substring)
def _substring(c: Translation, node: exp.Substring) -> TypedText:
    value = _text(c, node.this)
    start = as_integer(c.scalar(node.args["start"]), node.args["start"])
    length_node = node.args.get("length")
    length = None if length_node is None else as_integer(c.scalar(length_node), length_node)
    if isinstance(start.literal, int) and start.literal > 0 and (length is None or (length.literal or 0) > 0):
        rest = "" if length is None else f", {length.sql}"
        return TypedText(f"substring({value.sql}, {start.sql}{rest})", pa.string())

    def make(name: str) -> str:
        text, at = f"{name}.s", f"{name}.p"
        # From 0, before the first character for starts beyond the left end.
        first = f"CASE WHEN {at} > 0 THEN {at} - 1 WHEN {at} < 0 THEN length({text}) + {at} ELSE 0 END"
        end = f"length({text})" if length is None else f"({first}) + {length.sql}::BIGINT"
        shown = f"greatest({first}, 0)"
        missing = f"{text} IS NULL OR {at} IS NULL" + ("" if length is None else f" OR {length.sql} IS NULL")
        made = f"substring({text}, {shown} + 1, greatest({end} - {shown}, 0))"
        return f"CASE WHEN {missing} THEN NULL ELSE {made} END"

    return TypedText(with_name(f"{{'s': {value.sql}, 'p': {start.sql}::BIGINT}}", make), pa.string())


@translates(exp.Left, exp.Right)
def _left(c: Translation, node: exp.Left | exp.Right) -> TypedText:
    word = "left" if isinstance(node, exp.Left) else "right"
    count = as_integer(c.scalar(node.expression), node.expression)
    return TypedText(f"{word}({_text(c, node.this).sql}, {_not_below_zero(count)})", pa.string())


@translates(exp.Pad)
def _pad(c: Translation, node: exp.Pad) -> TypedText:
    word = "lpad" if node.args.get("is_left") else "rpad"
    pattern = node.args.get("fill_pattern")
    filled = " " if pattern is None else literal_text(c.scalar(pattern), pattern, f"the text that {word}() adds")
    if not filled:
        raise make_refusal(f"{word}() adds a text that is not empty in a query", node)
    count = as_integer(c.scalar(node.expression), node.expression)
    return TypedText(f"{word}({_text(c, node.this).sql}, {_not_below_zero(count)}, {quote_text(filled)})", pa.string())


@translates(exp.Replace)
def _replace(c: Translation, node: exp.Replace) -> TypedText:
    replacement = node.args.get("replacement")
    new = "''" if replacement is None else _text(c, replacement).sql
    return TypedText(f"replace({_text(c, node.this).sql}, {_text(c, node.expression).sql}, {new})", pa.string())


@translates(exp.Translate)
def _translate(c: Translation, node: exp.Translate) -> TypedText:
    old = literal_text(c.scalar(node.args["from_"]), node, "the characters of translate()")
    new = literal_text(c.scalar(node.args["to"]), node, "the characters of translate()")
    if len(set(old)) != len(old) or len(new) > len(old):
        raise make_refusal(
            "translate() takes each character once, and not more new ones than old ones, in a query", node
        )
    return TypedText(f"translate({_text(c, node.this).sql}, {quote_text(old)}, {quote_text(new)})", pa.string())


@translates(exp.Repeat)
def _repeat(c: Translation, node: exp.Repeat) -> TypedText:
    count = as_integer(c.scalar(node.args["times"]), node)
    return TypedText(f"repeat({_text(c, node.this).sql}, {_not_below_zero(count)})", pa.string())


@translates(exp.Initcap)
def _initcap(c: Translation, node: exp.Initcap) -> TypedText:
    value = _text(c, node.this)
    first = "CASE left(__w, 1) WHEN 'ß' THEN 'Ss' ELSE upper(left(__w, 1)) END"
    words = f"string_split(lower({value.sql}), ' ')"
    made = f"array_to_string(list_transform({words}, lambda __w: {first} || substring(__w, 2)), ' ')"
    return TypedText(made, pa.string())


@translates(exp.StrPosition)
def _instr(c: Translation, node: exp.StrPosition) -> TypedText:
    value, part = _text(c, node.this), _text(c, node.args["substr"])
    start = node.args.get("position")
    if start is None:
        return TypedText(f"CAST(strpos({value.sql}, {part.sql}) AS INTEGER)", pa.int32())
    first = literal_integer(c.scalar(start), start, "the start of locate()")
    if first < 1:
        raise make_refusal("the start of locate() must be 1 or more in a query", node)
    found = f"strpos(substring({value.sql}, {first}), {part.sql})"
    made = f"CASE WHEN {found} = 0 THEN 0 ELSE {found} + {first - 1} END"
    return TypedText(f"CAST({made} AS INTEGER)", pa.int32())


for _test, _word in (
    (exp.StartsWith, "starts_with"),
    (exp.EndsWith, "ends_with"),
    (exp.Contains, "contains"),
):

    def _test_text(c: Translation, node: exp.Func, word: str = _word) -> TypedText:
        return TypedText(f"{word}({_text(c, node.this).sql}, {_text(c, node.expression).sql})", pa.bool_())

    translates(_test)(_test_text)


@translates(exp.SplitPart)
def _split_part(c: Translation, node: exp.SplitPart) -> TypedText:
    index = literal_integer(c.scalar(node.args["part_index"]), node, "the number of split_part()")
    delimiter = literal_text(c.scalar(node.args["delimiter"]), node, "the delimiter of split_part()")
    if index == 0 or not delimiter:
        raise make_refusal("split_part() takes a number that is not 0, and a delimiter", node)
    return TypedText(f"split_part({_text(c, node.this).sql}, {quote_text(delimiter)}, {index})", pa.string())


@translates(exp.RegexpSplit)
def _split(c: Translation, node: exp.RegexpSplit) -> TypedText:
    pattern = literal_text(c.scalar(node.expression), node.expression, "the pattern of split()")
    limit = node.args.get("limit")
    if limit is not None or not pattern:
        raise make_refusal("split() takes a text and a pattern in a query", node)
    made = f"string_split_regex({_text(c, node.this).sql}, {quote_text(translate_pattern(pattern, node))})"
    return TypedText(made, pa.list_(pa.string()))


@translates(exp.RegexpLike)
def _rlike(c: Translation, node: exp.RegexpLike) -> TypedText:
    pattern = literal_text(c.scalar(node.expression), node.expression, "the pattern of RLIKE")
    found = quote_text(translate_pattern(pattern, node, tests_only=True))
    return TypedText(f"regexp_matches({_text(c, node.this).sql}, {found})", pa.bool_())


@translates(exp.RegexpExtract)
def _regexp_extract(c: Translation, node: exp.RegexpExtract) -> TypedText:
    pattern = literal_text(c.scalar(node.expression), node.expression, "the pattern of regexp_extract()")
    group = node.args.get("group")
    number = 1 if group is None else literal_integer(c.scalar(group), node, "the group of regexp_extract()")
    groups = re.compile(pattern).groups
    if not 0 <= number <= groups:
        raise make_analysis_error(f"the pattern of regexp_extract() has {groups} groups, and not number {number}", node)
    made = f"regexp_extract({_text(c, node.this).sql}, {quote_text(translate_pattern(pattern, node))}, {number})"
    return TypedText(made, pa.string())


@translates(exp.RegexpReplace)
def _regexp_replace(c: Translation, node: exp.RegexpReplace) -> TypedText:
    if node.args.get("position") is not None:
        raise make_refusal("regexp_replace() has three arguments in a query", node)
    pattern = literal_text(c.scalar(node.expression), node.expression, "the pattern of regexp_replace()")
    new_node = node.args["replacement"]
    new = literal_text(c.scalar(new_node), new_node, "the replacement of regexp_replace()")
    if "\\" in new:
        raise make_refusal("the replacement of regexp_replace() has no backslashes in a query", node)
    replaced = re.sub(r"\$(\d)", r"\\\1", new)
    if "$" in replaced:
        raise make_refusal("the replacement of regexp_replace() has $ before the number of a group only", node)
    made = f"{_text(c, node.this).sql}, {quote_text(translate_pattern(pattern, node))}, {quote_text(replaced)}"
    return TypedText(f"regexp_replace({made}, 'g')", pa.string())


def translate_pattern(pattern: str, node: exp.Expr, *, tests_only: bool = False) -> str:
    r"""Return a pattern of Java as one of DuckDB's (RE2) that finds the same.

    Args:
        pattern: the pattern.
        node: where it is.
        tests_only: whether it only matters that something is found, and not what.

    Raises:
        SQLNotSupportedError: if RE2 has no such pattern, or another meaning of it.
        SQLAnalysisError: if it is not a pattern.

    Example:
        >>> translate_pattern("a.c", exp.Null())
        'a[^\\n\\r\\x{85}\\x{2028}\\x{2029}]c'
    """
    try:
        re.compile(pattern)
    except (re.error, RecursionError) as error:
        raise make_analysis_error(f"{pattern!r} is not a regular expression: {error}", node) from None
    made: list[str] = []
    in_class = False
    at = 0
    while at < len(pattern):
        character, following = pattern[at], pattern[at + 1 : at + 2]
        at += 1
        if character == "\\":
            if following not in _KEPT_ESCAPES or (following in "bB" and in_class):
                raise _refuse_pattern(f"\\{following}", node)
            # \s of Java also means the vertical tabulator.
            made.append({"s": r"\s\x0b" if in_class else r"[\s\x0b]"}.get(following, f"\\{following}"))
            if following == "S":
                raise _refuse_pattern(r"\S", node)
            at += 1
        elif in_class:
            if (character == "&" and following == "&") or character == "[":
                raise _refuse_pattern(character, node)
            in_class = character != "]"
            made.append(character)
        elif character == "[":
            in_class = True
            made.append(character)
            if pattern[at : at + 1] == "^":
                made.append("^")
                at += 1
        elif character == "(" and following == "?" and pattern[at + 1 : at + 2] != ":":
            raise _refuse_pattern(pattern[at - 1 : at + 2], node)
        elif character in "*+?}" and following == "+":
            raise _refuse_pattern(f"{character}+", node)
        elif character == ".":
            made.append(f"[^{_LINE_ENDS}]")
        elif character == "$":
            if not tests_only:
                raise _refuse_pattern("$", node)
            made.append(rf"(?:\r\n|[{_LINE_ENDS}])?\z")
        else:
            made.append(character)
    return "".join(made)


def _refuse_pattern(part: str, node: exp.Expr) -> Exception:
    return make_refusal(
        f"a pattern with {part!r} means something else in DuckDB than in Spark, or nothing: write it in another way",
        node,
    )


@translates(exp.Like, exp.ILike)
def _like(c: Translation, node: exp.Like | exp.ILike) -> TypedText:
    return translate_like(c, node, "\\")


@translates(exp.Escape)
def _escape(c: Translation, node: exp.Escape) -> TypedText:
    inner = node.this
    if not isinstance(inner, exp.Like | exp.ILike):
        raise make_refusal("ESCAPE belongs to LIKE and ILIKE", node)
    return translate_like(c, inner, literal_text(c.scalar(node.expression), node, "the character of ESCAPE"))


def translate_like(c: Translation, node: exp.Like | exp.ILike, escape: str) -> TypedText:
    """Return LIKE or ILIKE with an escape character."""
    if isinstance(node.expression, exp.Any | exp.All):
        raise make_refusal("LIKE ANY and LIKE ALL are not there in a query: write LIKE ... OR LIKE ...", node)
    value, pattern = _text(c, node.this), _text(c, node.expression)
    if isinstance(pattern.literal, str):
        _check_like(pattern.literal, escape, node)
    word = "LIKE" if isinstance(node, exp.Like) else "ILIKE"
    word = f"NOT {word}" if node.args.get("negate") else word
    return TypedText(f"({value.sql} {word} {pattern.sql} ESCAPE {quote_text(escape)})", pa.bool_())


def _check_like(pattern: str, escape: str, node: exp.Expr) -> None:
    at = 0
    while at < len(pattern):
        if pattern[at] == escape:
            if pattern[at + 1 : at + 2] not in ("%", "_", escape):
                raise make_analysis_error(f"in a pattern of LIKE, {escape!r} stands before %, _, or itself", node)
            at += 1
        at += 1


@translates(exp.Ascii)
def _ascii(c: Translation, node: exp.Ascii) -> TypedText:
    value = _text(c, node.this)
    return TypedText(f"CASE WHEN {value.sql} = '' THEN 0 ELSE ascii({value.sql}) END", pa.int32())


@translates(exp.Hex)
def _hex(c: Translation, node: exp.Hex) -> TypedText:
    value = c.scalar(node.this)
    if pa.types.is_integer(value.dtype):
        return TypedText(f"to_hex(CAST({value.sql} AS BIGINT))", pa.string())
    if not (value.dtype == STRING or value.dtype == pa.binary()):
        raise make_analysis_error(
            f"hex() takes a text, bytes or an integer, and this is a {describe_type(value.dtype)}", node
        )
    return TypedText(f"hex({value.sql})", pa.string())


@translates(exp.SHA2)
def _sha2(c: Translation, node: exp.SHA2) -> TypedText:
    length = node.args.get("length")
    if length is not None and literal_integer(c.scalar(length), node, "the length of sha2()") not in (0, 256):
        raise make_refusal("sha2() has 256 bits in a query", node)
    return TypedText(f"sha256({_text(c, node.this).sql})", pa.string())


@translates(exp.SHA)
def _sha1(c: Translation, node: exp.SHA) -> TypedText:
    return TypedText(f"sha1({_text(c, node.this).sql})", pa.string())


@translates(exp.JSONExtractScalar)
def _get_json_object(c: Translation, node: exp.JSONExtractScalar) -> TypedText:
    value = _text(c, node.this)
    parts = []
    path = node.expression
    for part in path.expressions if isinstance(path, exp.JSONPath) else [None]:
        if isinstance(part, exp.JSONPathRoot):
            continue
        if isinstance(part, exp.JSONPathKey) and isinstance(part.this, str):
            parts.append("/" + part.this.replace("~", "~0").replace("/", "~1"))
        elif isinstance(part, exp.JSONPathSubscript) and isinstance(part.this, int) and part.this >= 0:
            parts.append(f"/{part.this}")
        else:
            raise make_refusal(
                "the path of get_json_object() has names and numbers only, such as '$.a[0].b', in a query", node
            )
    pointer = quote_text("".join(parts))
    made = f"CASE WHEN json_valid({value.sql}) THEN json_extract_string({value.sql}, {pointer}) END"
    return TypedText(made, pa.string())
