"""Common helpers of operators for users' functions."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from streamrt.arguments import checked, refuse_async
from streamrt.errors import ArgumentTypeError, ArgumentValueError
from streamrt.records import Headers
from streamrt.state.access.keyed_state import OVER
from streamrt.state.layout import LATEST_EXPIRY
from streamrt.state.spec import StoreSpec
from streamrt.topology import InlinedCode, RecordHandler, StateAccess

# Arguments that operators pass to a function after the value, by the options that request them.
_PASSED = {
    (): (),
    ("stateful=True",): ("state",),
    ("metadata=True",): ("key", "timestamp", "headers"),
    ("metadata=True", "stateful=True"): ("key", "timestamp", "headers", "state"),
}
_STATE_MISSING = re.compile(r"missing \d+ required positional arguments?: .*'state'")


def require_callable(operator: str, function: Any, *, waits: bool = False) -> None:
    """Refuse an object that cannot be called, or that is asynchronous, when the dataframe is built.

    Args:
        operator: the method of the dataframe, such as `apply()`.
        function: the object.
        waits: whether the operator waits for asynchronous functions.

    Raises:
        ArgumentTypeError: if `function` is not callable, or is asynchronous without `waits`.
    """
    if not callable(function):
        raise ArgumentTypeError(f"{operator} needs a function, got {type(function).__name__}")
    if not waits:
        refuse_async(operator, function, "use apply_async() for calls that wait")


def require_name(method: str, name: Any) -> None:
    """Refuse a `name=` argument that is neither None nor a non-empty string, when the dataframe is built.

    Args:
        method: the method of the dataframe, such as `group_by`.
        name: the argument.

    Raises:
        InvalidOperationError: if `name` is an empty string or no string.
    """
    checked(f"{method}(name=...)", name, str, "a non-empty string", bool, optional=True)


def require_parameters(
    operator: str, function: Callable[..., Any], *, metadata: bool, stateful: bool, waits: bool = False
) -> None:
    """Refuse a function whose parameters do not fit the arguments of an operator, when the dataframe is built.

    Functions with unknown parameters, such as many functions in C, are accepted.

    Args:
        operator: the method of the dataframe, such as `apply()`.
        function: the user's function.
        metadata: whether the operator passes key, timestamp and headers.
        stateful: whether the operator passes the state.
        waits: whether the operator waits for asynchronous functions.

    Raises:
        ArgumentTypeError: if `function` is not callable, takes other arguments, or is asynchronous without `waits`.

    Example:
        >>> require_parameters("apply()", lambda value, state: value, metadata=False, stateful=True)
    """
    require_callable(operator, function, waits=waits)
    try:
        # Of a decorated function, the wrapper is called.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    given = tuple(name for name, on in (("metadata=True", metadata), ("stateful=True", stateful)) if on)
    if _takes_arguments(signature, _PASSED[given]):
        return
    fitting = [
        " and ".join(options) for options, names in _PASSED.items() if options and _takes_arguments(signature, names)
    ]
    cure = "change the parameters of the function"
    if fitting:
        cure = f"pass {' or '.join(fitting)} to {operator}, or {cure}"
    elif given and _takes_arguments(signature, ()):
        cure = f"leave out {' and '.join(given)}, or {cure}"
    passed, taken = ", ".join(("value", *_PASSED[given])), ", ".join(signature.parameters)
    raise ArgumentTypeError(
        f"{operator} calls {function_name(function)} with ({passed}), but its parameters are ({taken}): {cure}"
    )


def state_advice(error: BaseException) -> str:
    """Return advice for an error if a function was called without the `State` that it takes; otherwise an empty string.

    Example:
        >>> state_advice(TypeError("add_up() missing 1 required positional argument: 'state'"))
        "; pass stateful=True to the operator if 'state' is to be the State of the record's key"
        >>> state_advice(TypeError("unsupported operand"))
        ''
    """
    if isinstance(error, TypeError) and _STATE_MISSING.search(str(error)):
        return "; pass stateful=True to the operator if 'state' is to be the State of the record's key"
    return ""


def _takes_arguments(signature: inspect.Signature, more: tuple[str, ...]) -> bool:
    try:
        signature.bind("value", *more)
    except TypeError:
        return False
    return True


def function_name(function: Callable[..., Any]) -> str:
    """Return a readable name of a function.

    Example:
        >>> function_name(len), function_name(lambda value: value)
        ('len', '<lambda>')
    """
    name = getattr(function, "__qualname__", None)
    if name is None:
        plain = "__str__" not in vars(type(function))
        name = type(function).__qualname__ if plain else str(function)
    return str(name).rsplit("<locals>.", 1)[-1]


def with_state(function: Callable[..., Any], metadata: bool, state_of: StateAccess) -> Callable[..., Any]:
    """Turn a function whose last argument is a `State` into one of value, key, timestamp and headers.

    Args:
        function: function of the value, with `metadata` also of key, timestamp and headers, and then of the state.
        metadata: whether the function takes metadata.
        state_of: returns the state of a record's key. It ends with the call.
    """

    def call_with_metadata(value: Any, key: Any, timestamp: int, headers: Headers | None) -> Any:
        state = state_of(key, timestamp)
        try:
            return function(value, key, timestamp, headers, state)
        finally:
            state._transaction = OVER

    def call(value: Any, key: Any, timestamp: int, headers: Headers | None) -> Any:
        state = state_of(key, timestamp)
        try:
            return function(value, state)
        finally:
            state._transaction = OVER

    return call_with_metadata if metadata else call


def inlined_call(
    code: InlinedCode, function: Callable[..., Any], metadata: bool, store: StoreSpec | None = None
) -> str:
    """Return the Python that calls a function of users for a record.

    Args:
        code: the lines that call it.
        function: function of the value, with `metadata` also of key, timestamp and headers, and with a store of the state.
        metadata: whether the function takes metadata.
        store: the store of the `State` that the function takes as its last argument; None for no state.

    Raises:
        ValueError: if the function needs state, and the code has no context.
    """
    code.is_plain = False
    if store is not None:
        if code.context is None:
            raise ValueError(f"a function with state in store {store.name!r} is compiled without a context")
        function, metadata = with_state(function, metadata, code.context.state(store)), True
    return f"{code.name_object(function)}({'value, key, timestamp, headers' if metadata else 'value'})"


def side_output_of(outputs: Mapping[str, RecordHandler | None], tag: str, function: str) -> RecordHandler | None:
    """Return what takes the records of a side output; None where nothing reads them.

    Args:
        outputs: the side outputs of a function.
        tag: the name of one.
        function: the name of the function, for the error.

    Raises:
        ArgumentValueError: if the function does not declare it.
    """
    if tag not in outputs:
        declared = ", ".join(map(repr, outputs)) or "none"
        raise ArgumentValueError(
            f"{function} has no side output {tag!r}; its outputs: {declared}. Add it to the attribute `outputs` of the class"
        )
    return outputs[tag]


def checked_timer_time(time: Any, end: int = LATEST_EXPIRY) -> int:
    """Return the time of a timer, if it can be one.

    Args:
        time: the time, in milliseconds.
        end: the first time that is too late.

    Raises:
        ArgumentTypeError: if it is not an int.
        ArgumentValueError: if it is below 0 or too late.
    """
    if type(time) is not int:
        raise ArgumentTypeError(f"the time of a timer must be an int in milliseconds, got {type(time).__name__}")
    if not 0 <= time < end:
        raise ArgumentValueError(f"the time of a timer must be milliseconds since 1970, got {time}")
    return time
