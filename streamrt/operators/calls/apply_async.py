"""`apply_async`: replaces each value by the result of an asynchronous function."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from streamrt.arguments import is_async, is_async_generator
from streamrt.errors import ArgumentTypeError
from streamrt.operators.calls.retry import Retry
from streamrt.operators.functions import function_name
from streamrt.records import Headers
from streamrt.topology import AsyncCalls, Node, Operator, OperatorContext, RecordHandler

__all__ = ["ApplyAsync", "require_async"]


@dataclass(frozen=True)
class ApplyAsync(Operator):
    """Calls an asynchronous function for several records at once, and passes on its results in the task's thread.

    Attributes:
        function: asynchronous function of the value; with `metadata` also of key, timestamp and headers.
        timeout_s: maximum duration of a call with all its attempts, in seconds.
        capacity: maximum number of records whose results have not been passed on.
        ordered: whether results keep the order of their records.
        expand: pass on the items of the returned iterable one by one.
        metadata: whether the function takes metadata.
        retry: how calls are repeated; None for one attempt.
        on_timeout: function of the value whose result replaces that of a call that took too long; None for an error.
        batch_size: maximum number of records in one call, whose function takes and returns lists; None for single records.
        batch_wait_s: how long the first record of a batch waits for others, in seconds.
    """

    name: ClassVar[str] = "apply_async"
    separates: ClassVar[bool] = True
    function: Callable[..., Awaitable[Any]]
    timeout_s: float
    capacity: int = 100
    ordered: bool = True
    expand: bool = False
    metadata: bool = False
    retry: Retry | None = None
    on_timeout: Callable[[Any], Any] | None = None
    batch_size: int | None = None
    batch_wait_s: float = 0.0

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        function = self.function if self.retry is None else self.retry.wrap(self.function)
        if self.batch_size is not None:
            # Imported on use: it imports asyncio, which few applications need.
            from streamrt.operators.calls.batches import BatchedCalls

            function = BatchedCalls(function, self.batch_size, self.batch_wait_s, str(node))
        timeout_s, on_timeout, expand = self.timeout_s, self.on_timeout, self.expand

        def start(value: Any, key: Any, timestamp: int, headers: Headers | None) -> Awaitable[Any]:
            return function(value)

        def start_metadata(value: Any, key: Any, timestamp: int, headers: Headers | None) -> Awaitable[Any]:
            return function(value, key, timestamp, headers)

        def finish(
            result: Any,
            error: BaseException | None,
            late: bool,
            value: Any,
            key: Any,
            timestamp: int,
            headers: Headers | None,
            *,
            _node: Node = node,
        ) -> None:
            if late:
                if on_timeout is None:
                    raise TimeoutError(
                        f"no result within {timeout_s:g} s: raise timeout of apply_async, or set on_timeout"
                    ) from error
                result = on_timeout(value)
            elif error is not None:
                raise error
            if not expand:
                child(result, key, timestamp, headers)
                return
            for item in _iterate_items(result):
                child(item, key, timestamp, headers)

        calls = AsyncCalls(
            start_metadata if self.metadata else start, finish, timeout_s, self.capacity, self.ordered, self.describe()
        )
        return context.asynchronous(node, calls)

    def multiplies_records(self) -> bool:  # noqa: D102
        return self.expand

    def describe(self) -> str:  # noqa: D102
        order = "" if self.ordered else ", unordered"
        batches = "" if self.batch_size is None else f", batches of {self.batch_size}"
        return function_name(self.function) + batches + (", expand" if self.expand else "") + order


def require_async(function: Any) -> None:
    """Refuse a function that is not asynchronous, when the dataframe is built.

    Raises:
        ArgumentTypeError: if it is not defined by `async def`, or is a generator.
    """
    name = function_name(function)
    if is_async_generator(function):
        raise ArgumentTypeError(
            f"apply_async() cannot call {name}, an asynchronous generator: return a list, and pass expand=True"
        )
    if not is_async(function):
        raise ArgumentTypeError(
            f"apply_async() needs a function defined by 'async def', and {name} is not: use apply() for it, or call it by "
            "asyncio.to_thread() in an asynchronous function"
        )


def _iterate_items(result: Any) -> Any:
    try:
        return iter(result)
    except TypeError:
        raise TypeError(
            f"apply_async(expand=True) needs an iterable, but the function returned {type(result).__name__}"
        ) from None
