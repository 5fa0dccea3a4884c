"""Shared by sinks and sources: connect to the external system and call the user's callbacks."""

from collections.abc import Callable

__all__ = ["ClientConnectFailureCallback", "ClientConnectSuccessCallback"]

ClientConnectSuccessCallback = Callable[[], None]
"""Called when a connector has connected to its system."""

ClientConnectFailureCallback = Callable[[Exception], None]
"""Called with the error when a connector cannot connect. The callback raises to fail, or returns to continue."""


def connect(
    setup: Callable[[], None],
    on_success: ClientConnectSuccessCallback | None,
    on_failure: ClientConnectFailureCallback | None,
) -> None:
    """Call `setup`, then the callback for its outcome.

    Args:
        setup: connects to the external system.
        on_success: called after `setup` succeeds.
        on_failure: called with the error when `setup` fails. If it returns, the error counts as handled; if it
            raises, that error propagates. Without it, the error of `setup` propagates.
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
