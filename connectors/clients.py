"""What sinks and sources share: connecting to the outside, with the user's callbacks."""

from collections.abc import Callable

__all__ = ["ClientConnectFailureCallback", "ClientConnectSuccessCallback"]

ClientConnectSuccessCallback = Callable[[], None]
"""Called when a connector has reached its system."""

ClientConnectFailureCallback = Callable[[Exception], None]
"""Called with the error when a connector could not reach its system; raises to refuse, returns to go on all the same."""


def connect(
    setup: Callable[[], None],
    on_success: ClientConnectSuccessCallback | None,
    on_failure: ClientConnectFailureCallback | None,
) -> None:
    """Call `setup` and tell the callbacks how it went.

    Args:
        setup: connects to the outside.
        on_success: called after a `setup` that succeeded.
        on_failure: called with the error of a `setup` that failed; what it raises leaves, and if it returns, the
            error counts as dealt with. Without it, the error leaves.
    """
    try:
        setup()
    except Exception as error:
        if on_failure is None:
            raise
        on_failure(error)
    else:
        if on_success is not None:
            on_success()
