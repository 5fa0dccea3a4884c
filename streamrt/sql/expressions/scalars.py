"""`bind_scalar`: from the tree of sqlglot to a typed expression."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from streamrt.common.suggestions import suggest_name
from streamrt.sql.expressions.calls import Call, check_arguments
from streamrt.sql.expressions.casts import bind_cast, unify
from streamrt.sql.expressions.coercion import BINARY, BOOLEAN, NULL, STRING
from streamrt.sql.expressions.failures import make_analysis_error, make_refusal
from streamrt.sql.expressions.functions.dates import bind_extract, bind_with_unit
from streamrt.sql.expressions.functions.patterns import bind_like
from streamrt.sql.expressions.functions.refused import reason_of
from streamrt.sql.expressions.functions.registry import find_function, known_names
from streamrt.sql.expressions.intervals import bind_interval
from streamrt.sql.expressions.lambdas import LambdaParameter, UnboundLambda, make_unknown_parameter_error
from streamrt.sql.expressions.literals import read_number
from streamrt.sql.expressions.logic import And, Case, Coalesce, Condition, IsNull, IsTruth, Not, Or, join_all
from streamrt.sql.expressions.nested import bind_item, make_array, make_map, make_struct, select_field
from streamrt.sql.expressions.nodes import Constant, fold_constants
from streamrt.sql.expressions.operators import (
    bind_arithmetic,
    bind_comparison,
    bind_distinctness,
    bind_in_list,
    bind_negation,
    require_boolean,
)
from streamrt.sql.expressions.type_names import read_type
from streamrt.sql.expressions.typed import Scope, TypedExpression
from streamrt.sql.expressions.user_functions import FunctionRegistry

__all__ = ["bind_condition", "bind_scalar"]

_ARITHMETIC: Final = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div"}
_COMPARISONS: Final = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_WITH_UNIT: Final = ("timestampadd", "timestampdiff", "date_add", "dateadd", "date_diff", "datediff")


def bind_scalar(node: exp.Expr, scope: Scope, functions: FunctionRegistry | None = None) -> TypedExpression:
    """Return the typed expression of a tree: names are columns of the scope, types are Spark's in ANSI mode.

    Args:
        node: the tree, read by `StreamSQL`; parameters are literals already.
        scope: what names mean.
        functions: those of users; None for none.

    Raises:
        SQLAnalysisError: if a name is not known, or types do not go together.
        SQLNotSupportedError: if a construct is refused.
    """
    return _Binder(scope, functions or FunctionRegistry()).bind(node)


def bind_condition(
    node: exp.Expr, scope: Scope, functions: FunctionRegistry | None = None, what: str = "WHERE"
) -> TypedExpression:
    """Return a condition of a filter: its value is true in Python if and only if the condition is TRUE.

    Its code is faster than that of `bind_scalar`, because it does not tell FALSE from NULL.

    Args:
        node: the tree.
        scope: what names mean.
        functions: those of users.
        what: which clause it is of, for the error.

    Raises:
        SQLAnalysisError: as `bind_scalar`, and if it is not BOOLEAN.
    """
    return Condition(require_boolean(bind_scalar(node, scope, functions), node, what))


class _Binder:
    """Binds the nodes of one tree."""

    def __init__(self, scope: Scope, functions: FunctionRegistry, parameters: Sequence[LambdaParameter] = ()) -> None:
        self._scope = scope
        self._functions = functions
        # Those of all lambdas around, from outside.
        self._parameters = (*parameters,)

    def bind(self, node: exp.Expr) -> TypedExpression:
        for kind in type(node).__mro__:
            method = _METHODS.get(kind)
            if method is not None:
                return method(self, node)
        raise self._refuse(node)

    def _refuse(self, node: exp.Expr) -> Exception:
        if isinstance(node, exp.AggFunc | exp.Window):
            return make_analysis_error(
                "an aggregate cannot stand here: it has one value for many rows; use a subquery, or HAVING", node
            )
        if isinstance(node, exp.Query | exp.Subquery | exp.Exists):
            return make_refusal("a subquery cannot stand here: join its rows, or use IN or EXISTS in WHERE", node)
        if isinstance(node, exp.Lambda):
            return make_analysis_error(
                "a lambda stands for no value: it is an argument of functions such as transform() and filter()", node
            )
        if isinstance(node, exp.Star):
            return make_analysis_error("* stands for columns, and one value is needed here", node)
        if isinstance(node, exp.Func) and (reason := reason_of(node.sql_name())) is not None:
            return make_refusal(reason, node)
        return make_refusal(f"{node.sql(dialect='spark')[:60]} is not supported", node)

    def _bind_all(self, nodes: Sequence[exp.Expr]) -> list[TypedExpression]:
        return [self.bind(node) for node in nodes]

    # Names and constants.

    def column(self, node: exp.Column) -> TypedExpression:
        if isinstance(node.this, exp.Star):
            raise self._refuse(node.this)
        return self._scope.resolve_column(node)

    def parameter(self, node: exp.Identifier) -> TypedExpression:
        """Return the parameter of the innermost lambda that has one of this name."""
        for parameter in reversed(self._parameters):
            if parameter.name.lower() == node.name.lower():
                return parameter
        raise make_unknown_parameter_error(node)

    def literal(self, node: exp.Literal) -> TypedExpression:
        if node.is_string:
            return Constant(str(node.this), STRING)
        return read_number(node)

    def boolean(self, node: exp.Boolean) -> TypedExpression:
        return Constant(bool(node.this), BOOLEAN)

    def null(self, node: exp.Null) -> TypedExpression:
        return Constant(None, NULL)

    def hexadecimal(self, node: exp.HexString) -> TypedExpression:
        digits = str(node.this)
        try:
            return Constant(bytes.fromhex("0" * (len(digits) % 2) + digits), BINARY)
        except ValueError:
            raise make_analysis_error("X'...' has digits of hexadecimal numbers only", node) from None

    def raw_text(self, node: exp.RawString) -> TypedExpression:
        return Constant(str(node.this), STRING)

    def interval(self, node: exp.Interval) -> TypedExpression:
        return bind_interval(node)

    def parenthesis(self, node: exp.Paren) -> TypedExpression:
        return self.bind(node.this)

    def alias(self, node: exp.Alias) -> TypedExpression:
        return self.bind(node.this)

    def tuple(self, node: exp.Tuple) -> TypedExpression:
        values = self._bind_all(node.expressions)
        return make_struct([f"col{number}" for number in range(1, len(values) + 1)], values, node)

    # Operators.

    def arithmetic(self, node: exp.Binary) -> TypedExpression:
        return bind_arithmetic(_ARITHMETIC[type(node)], self.bind(node.left), self.bind(node.right), node)

    def negation(self, node: exp.Neg) -> TypedExpression:
        return bind_negation(self.bind(node.this), node)

    def comparison(self, node: exp.Binary) -> TypedExpression:
        if isinstance(node.right, exp.Any | exp.All):
            raise self._refuse(node.right)
        return bind_comparison(_COMPARISONS[type(node)], self.bind(node.left), self.bind(node.right), node)

    def distinctness(self, node: exp.Binary) -> TypedExpression:
        negated = isinstance(node, exp.NullSafeNEQ)
        return bind_distinctness(self.bind(node.left), self.bind(node.right), node, negated=negated)

    def between(self, node: exp.Between) -> TypedExpression:
        operand, low, high = (self.bind(node.args[name]) for name in ("this", "low", "high"))
        found = _is_between(operand, low, high, node)
        if node.args.get("symmetric"):
            return join_all(Or, [found, _is_between(operand, high, low, node)])
        return found

    def conjunction(self, node: exp.And | exp.Or) -> TypedExpression:
        word, kind = ("AND", And) if isinstance(node, exp.And) else ("OR", Or)
        operands = [require_boolean(self.bind(operand), operand, word) for operand in (node.left, node.right)]
        return fold_constants(join_all(kind, operands))

    def inversion(self, node: exp.Not) -> TypedExpression:
        inner = node.this
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(node.this, exp.Is):
            return self._test(node.this, negated=True)
        return fold_constants(Not(require_boolean(self.bind(node.this), node.this, "NOT")))

    def test(self, node: exp.Is) -> TypedExpression:
        return self._test(node, negated=False)

    def _test(self, node: exp.Is, *, negated: bool) -> TypedExpression:
        operand, asked = self.bind(node.this), node.expression
        if isinstance(asked, exp.Not):
            negated, asked = not negated, asked.this
        if isinstance(asked, exp.Null):
            return fold_constants(IsNull(operand, negated))
        if isinstance(asked, exp.Boolean):
            return fold_constants(IsTruth(require_boolean(operand, node.this, "IS"), bool(asked.this), negated))
        raise make_analysis_error("IS tests for NULL, TRUE, FALSE, or DISTINCT FROM a value", node)

    def membership(self, node: exp.In) -> TypedExpression:
        if node.args.get("query") is not None or node.args.get("unnest") is not None:
            raise self._refuse(node.args.get("query") or node)
        return bind_in_list(self.bind(node.this), self._bind_all(node.expressions), node.expressions, node)

    def like(self, node: exp.Like | exp.ILike | exp.Escape) -> TypedExpression:
        escape = "\\"
        inner: exp.Expr = node
        if isinstance(node, exp.Escape):
            escape, inner = str(node.expression.name), node.this
            if len(escape) != 1:
                raise make_analysis_error("ESCAPE has one character", node)
        if not isinstance(inner.expression, exp.Any | exp.All):
            return self._like_one(inner, inner.expression, escape)
        listed = inner.expression.this
        patterns = listed.expressions if isinstance(listed, exp.Tuple) else [listed]
        kind = Or if isinstance(inner.expression, exp.Any) else And
        return fold_constants(join_all(kind, [self._like_one(inner, pattern, escape) for pattern in patterns]))

    def _like_one(self, node: exp.Expr, pattern: exp.Expr, escape: str) -> TypedExpression:
        any_case = isinstance(node, exp.ILike)
        call = self._call("ilike" if any_case else "like", node, [node.this, pattern])
        matched = bind_like(call, escape, any_case=any_case)
        return fold_constants(Not(matched)) if node.args.get("negate") else matched

    def expression_match(self, node: exp.RegexpLike) -> TypedExpression:
        matched = self._apply("rlike", node, [node.this, node.expression])
        return fold_constants(Not(matched)) if node.args.get("negate") else matched

    def concatenation(self, node: exp.DPipe) -> TypedExpression:
        return self._apply("concat", node, [node.left, node.right])

    def adjacent_texts(self, node: exp.Concat) -> TypedExpression:
        return self._apply("concat", node, node.expressions)

    # Conditions.

    def case(self, node: exp.Case) -> TypedExpression:
        default = node.args.get("default")
        nodes = [branch.args["true"] for branch in node.args["ifs"]]
        compared = None if node.this is None else self.bind(node.this)
        tests = []
        for branch in node.args["ifs"]:
            test = self.bind(branch.this)
            if compared is not None:
                test = bind_comparison("=", compared, test, branch.this)
            tests.append(require_boolean(test, branch.this, "WHEN"))
        return self._choose(tests, [*nodes, default or exp.null()], node, "CASE")

    def condition(self, node: exp.If) -> TypedExpression:
        test = require_boolean(self.bind(node.this), node.this, "if()")
        otherwise = node.args.get("false") or exp.null()
        return self._choose([test], [node.args["true"], otherwise], node, "if()")

    def null_choice(self, node: exp.Nvl2) -> TypedExpression:
        test = IsNull(self.bind(node.this), negated=True)
        otherwise = node.args.get("false") or exp.null()
        return self._choose([test], [node.args["true"], otherwise], node, "nvl2()")

    def _choose(
        self, tests: list[TypedExpression], nodes: list[exp.Expr], node: exp.Expr, what: str
    ) -> TypedExpression:
        values, dtype = unify(self._bind_all(nodes), nodes, what)
        return _simplify_case(list(zip(tests, values, strict=False)), values[-1], dtype)

    def coalescence(self, node: exp.Coalesce) -> TypedExpression:
        nodes = [node.this, *node.expressions]
        values, dtype = unify(self._bind_all(nodes), nodes, "coalesce()")
        while len(values) > 1 and isinstance(values[0], Constant) and values[0].value is None:
            values.pop(0)
        return values[0] if not values[0].nullable or len(values) == 1 else Coalesce(tuple(values), dtype)

    def null_if(self, node: exp.Nullif) -> TypedExpression:
        operand = self.bind(node.this)
        test = bind_comparison("=", operand, self.bind(node.expression), node)
        return _simplify_case([(test, Constant(None, operand.dtype))], operand, operand.dtype)

    # Casts, and what has syntax of its own.

    def cast(self, node: exp.Cast) -> TypedExpression:
        operand, target = self.bind(node.this), node.args["to"]
        if isinstance(node.this, exp.Literal) and node.this.is_string and isinstance(target.this, exp.Interval):
            raise make_refusal("write INTERVAL '3' DAY", node)
        return bind_cast(operand, read_type(target), node, safe=isinstance(node, exp.TryCast))

    def extract(self, node: exp.Extract) -> TypedExpression:
        operand = self.bind(node.expression)
        shown = (f"{node.this.name.upper()} FROM {operand}",)
        return bind_extract(Call("extract", node, (operand,), (node.expression,), shown), node.this.name)

    def trim(self, node: exp.Trim) -> TypedExpression:
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
        characters = node.args.get("expression")
        return self._apply(name, node, [node.this] if characters is None else [characters, node.this])

    def substring(self, node: exp.Substring) -> TypedExpression:
        start = node.args.get("start") or exp.Literal.number(1)
        length = node.args.get("length")
        return self._apply("substring", node, [node.this, start, *([] if length is None else [length])])

    def position(self, node: exp.StrPosition) -> TypedExpression:
        start = node.args.get("position")
        return self._apply("locate", node, [node.args["substr"], node.this, *([] if start is None else [start])])

    def overlay(self, node: exp.Overlay) -> TypedExpression:
        length = node.args.get("for_")
        parts = [node.this, node.expression, node.args["from_"]]
        return self._apply("overlay", node, parts if length is None else [*parts, length])

    # Lists, maps and structs.

    def dot(self, node: exp.Dot) -> TypedExpression:
        if not isinstance(node.expression, exp.Identifier):
            raise self._refuse(node)
        return select_field(self.bind(node.this), node.expression.name, node.expression)

    def bracket(self, node: exp.Bracket) -> TypedExpression:
        if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
            raise make_refusal("a[1:2] is not supported: write slice(a, start, length)", node)
        return bind_item(self.bind(node.this), self.bind(node.expressions[0]), node)

    def array(self, node: exp.Array) -> TypedExpression:
        return make_array(self._bind_all(node.expressions), list(node.expressions))

    def struct(self, node: exp.Struct) -> TypedExpression:
        names, nodes = [], []
        for number, part in enumerate(node.expressions, 1):
            named = isinstance(part, exp.PropertyEQ)
            names.append(part.this.name if named else f"col{number}")
            nodes.append(part.expression if named else part)
        return make_struct(names, self._bind_all(nodes), node)

    def map(self, node: exp.VarMap | exp.Map) -> TypedExpression:
        keys, values = node.args.get("keys"), node.args.get("values")
        if not isinstance(keys, exp.Array) or not isinstance(values, exp.Array):
            return self._apply("map_from_arrays", node, [each for each in (keys, values) if each is not None])
        pairs = self._bind_all(keys.expressions), self._bind_all(values.expressions)
        return make_map(*pairs, list(keys.expressions), list(values.expressions))

    # Functions.

    def function(self, node: exp.Anonymous) -> TypedExpression:
        name = str(node.this).lower()
        nodes = list(node.expressions)
        if name in _WITH_UNIT and len(nodes) == 3:
            arguments = self._bind_all(nodes[1:])
            shown = (nodes[0].name.upper(), *map(str, arguments))
            call = Call(name, node, tuple(arguments), tuple(nodes[1:]), shown)
            return bind_with_unit(call, nodes[0].name)
        return self._apply(name, node, nodes)

    def no_arguments(self, node: exp.Func) -> TypedExpression:
        return self._apply(node.sql_name().lower(), node, [])

    def _apply(self, name: str, node: exp.Expr, nodes: Sequence[exp.Expr]) -> TypedExpression:
        function = find_function(name)
        if function is None:
            return self._apply_user_function(name, node, nodes)
        check_arguments(function, nodes, node)
        return function.bind(self._call(function.name, node, nodes))

    def _apply_user_function(self, name: str, node: exp.Expr, nodes: Sequence[exp.Expr]) -> TypedExpression:
        function = self._functions.find(name)
        if function is None:
            reason = reason_of(name)
            if reason is not None:
                raise make_refusal(reason, node)
            known = (*known_names(), *self._functions.names())
            hint = suggest_name(name, known, 0.7) or "; register one with app.register_function"
            raise make_analysis_error(f"there is no function {name}{hint}", node)
        if function.kind != "scalar":
            where = "in SELECT with GROUP BY" if function.kind == "aggregate" else "in FROM"
            raise make_analysis_error(f"{name} is a function of kind {function.kind}, which stands {where}", node)
        return function.bind(Call(function.name, node, tuple(self._bind_all(nodes)), tuple(nodes)))

    def _call(self, name: str, node: exp.Expr, nodes: Sequence[exp.Expr]) -> Call:
        values = [each for each in nodes if not isinstance(each, exp.Lambda)]
        level, bind_body = len(self._parameters), self._bind_body
        lambdas = [UnboundLambda(each, name, level, bind_body) for each in nodes if isinstance(each, exp.Lambda)]
        return Call(name, node, tuple(self._bind_all(values)), tuple(nodes), lambdas=tuple(lambdas))

    def _bind_body(self, node: exp.Expr, parameters: Sequence[LambdaParameter]) -> TypedExpression:
        return _Binder(self._scope, self._functions, (*self._parameters, *parameters)).bind(node)


def _is_between(
    operand: TypedExpression, low: TypedExpression, high: TypedExpression, node: exp.Expr
) -> TypedExpression:
    bounds = [bind_comparison(">=", operand, low, node), bind_comparison("<=", operand, high, node)]
    return fold_constants(join_all(And, bounds))


def _simplify_case(
    branches: list[tuple[TypedExpression, TypedExpression]], otherwise: TypedExpression, dtype: pa.DataType
) -> TypedExpression:
    """Return the node of a CASE, without branches that constants rule out."""
    kept: list[tuple[TypedExpression, TypedExpression]] = []
    for test, value in branches:
        if isinstance(test, Constant) and test.value:
            otherwise = value
            break
        if not isinstance(test, Constant):
            kept.append((test, value))
    return Case(tuple(kept), otherwise, dtype) if kept else otherwise


_Method = Callable[[_Binder, Any], TypedExpression]
_METHODS: Final[dict[type, _Method]] = {
    exp.Column: _Binder.column,
    exp.Identifier: _Binder.parameter,
    exp.Literal: _Binder.literal,
    exp.Boolean: _Binder.boolean,
    exp.Null: _Binder.null,
    exp.HexString: _Binder.hexadecimal,
    exp.RawString: _Binder.raw_text,
    exp.Interval: _Binder.interval,
    exp.Paren: _Binder.parenthesis,
    exp.Alias: _Binder.alias,
    exp.Tuple: _Binder.tuple,
    **dict.fromkeys(_ARITHMETIC, _Binder.arithmetic),
    exp.Neg: _Binder.negation,
    **dict.fromkeys(_COMPARISONS, _Binder.comparison),
    exp.NullSafeEQ: _Binder.distinctness,
    exp.NullSafeNEQ: _Binder.distinctness,
    exp.Between: _Binder.between,
    exp.And: _Binder.conjunction,
    exp.Or: _Binder.conjunction,
    exp.Not: _Binder.inversion,
    exp.Is: _Binder.test,
    exp.In: _Binder.membership,
    exp.Like: _Binder.like,
    exp.ILike: _Binder.like,
    exp.Escape: _Binder.like,
    exp.RegexpLike: _Binder.expression_match,
    exp.DPipe: _Binder.concatenation,
    exp.Concat: _Binder.adjacent_texts,
    exp.Case: _Binder.case,
    exp.If: _Binder.condition,
    exp.Nvl2: _Binder.null_choice,
    exp.Coalesce: _Binder.coalescence,
    exp.Nullif: _Binder.null_if,
    exp.Cast: _Binder.cast,
    exp.Extract: _Binder.extract,
    exp.Trim: _Binder.trim,
    exp.Substring: _Binder.substring,
    exp.StrPosition: _Binder.position,
    exp.Overlay: _Binder.overlay,
    exp.Dot: _Binder.dot,
    exp.Bracket: _Binder.bracket,
    exp.Array: _Binder.array,
    exp.Struct: _Binder.struct,
    exp.VarMap: _Binder.map,
    exp.Map: _Binder.map,
    exp.Anonymous: _Binder.function,
}
