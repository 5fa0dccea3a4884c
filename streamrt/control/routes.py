"""The routes of the control server: `Routes.table` has all of them."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from streamrt.common.texts import one_line
from streamrt.control.calls import Answer, Call, Calls, bad_request, http_problem
from streamrt.control.controlled import Controlled, Inside
from streamrt.control.dashboard import page_routes
from streamrt.control.metrics import ApplicationMetrics
from streamrt.control.overview import described_overview, described_status
from streamrt.control.problems import Problem
from streamrt.control.state import KEY_PARAMETERS, SCAN_PARAMETERS, StateRoutes
from streamrt.errors import ApplicationStateError, ApplicationTimeoutError, ArgumentValueError
from streamrt.runtime.driver.checkpoints import Checkpoint
from streamrt.runtime.driver.lag import LagSampler
from streamrt.runtime.driver.lifecycle import ApplicationStatus
from streamrt.runtime.driver.waits import ended_by
from streamrt.topology.diagram import TopologyData

__all__ = ["Routes"]

logger = logging.getLogger("streamrt")

_LOOK_S = 0.1
_READY = (ApplicationStatus.RUNNING, ApplicationStatus.PAUSED)


class Routes:
    """The routes of one application.

    Args:
        app: the application.
        inside: its sources and its progress.
        lag: knows the lag, and partitions without progress.
        may_restart: returns whether the application stays when it stops, so that it can be started again.
    """

    def __init__(self, app: Controlled, inside: Inside, lag: LagSampler, may_restart: Callable[[], bool]) -> None:
        self._app = app
        self._inside = inside
        self._lag = lag
        self._may_restart = may_restart
        self._metrics = ApplicationMetrics(app, inside, lambda: lag.sample, lambda: not self._reasons())
        self._restarting = threading.Lock()
        # Apart, so that many requests that wait leave room for probes.
        self._waits = Calls()
        self._reads = Calls()
        self._calls = Calls(self._waits)
        self._state = StateRoutes(app)

    def table(self) -> list[Route]:
        """Return all routes."""
        get, post, read = self._calls.get, self._calls.post, self._reads.get
        return [
            *page_routes(),
            Route("/live", self._live, methods=["GET"]),
            get("/ready", self._ready),
            get("/status", self._status),
            get("/overview", self._overview),
            get("/config", self._config),
            get("/progress", self._progress),
            get("/stats", self._stats, "wait"),
            get("/completion", self._completion, "token", "sources", "wait"),
            get("/idle", self._idle, "idle_interval", "poll_interval", "wait"),
            get("/end", self._end, "wait"),
            get("/topology", self._topology, "format"),
            get("/metrics", self._scrape),
            get("/checkpoints/{number:int}", self._checkpoint_status),
            read("/state", self._state.stores),
            read("/state/{store}", self._state.scan, *SCAN_PARAMETERS),
            read("/state/{store}/{key:path}", self._state.key, *KEY_PARAMETERS),
            post("/checkpoint", self._checkpoint, "wait"),
            post("/pause", partial(self._move, self._app.pause), "wait"),
            post("/resume", partial(self._move, self._app.resume), "wait"),
            post("/stop", self._stop, "fail", "wait"),
            post("/restart", self._restart, "wait"),
            post("/topics/{topic}/pause", partial(self._move, self._app.pause), "wait"),
            post("/topics/{topic}/resume", partial(self._move, self._app.resume), "wait"),
            self._waits.post("/sources/{source:path}/pause", partial(self._move_source, self._app.pause_source)),
            post("/sources/{source:path}/resume", partial(self._move_source, self._app.resume_source)),
        ]

    def asgi(self) -> Starlette:
        """Return the application of starlette; it makes an answer of every error."""
        handlers: Any = {HTTPException: http_problem}
        application = Starlette(routes=self.table(), exception_handlers=handlers)
        application.router.redirect_slashes = False
        return application

    # -- Reading -----------------------------------------------------------------------------------------------------

    async def _live(self, request: Request) -> Response:
        # Not in a thread: as long as the server answers, the process lives.
        return JSONResponse({"live": True})

    def _ready(self, call: Call) -> Answer:
        reasons = self._reasons()
        body: dict[str, Any] = {"ready": not reasons}
        if call.known:
            body.update(status=self._app.status.value, reasons=reasons)
        return Answer(body, 503 if reasons else 200)

    def _reasons(self) -> list[str]:
        """Return why the application is not ready."""
        status = self._app.status
        if status not in _READY:
            waits = self._app.progress().waiting_for if status.is_active else ""
            return [f"the application is {status.value}" + (f", and waits for {waits}" if waits else "")]
        return [str(stuck) for stuck in self._lag.stuck]

    def _status(self, call: Call) -> Answer:
        return Answer(described_status(self._app, self._inside))

    def _overview(self, call: Call) -> Answer:
        return Answer(described_overview(self._app, self._inside, self._lag.look(), self._reasons()))

    def _progress(self, call: Call) -> Answer:
        return Answer(self._app.progress().as_dict())

    def _stats(self, call: Call) -> Answer:
        wait_s = call.wait_s
        return Answer((self._app.stats() if wait_s is None else self._app.stats(wait_s)).as_dict())

    def _completion(self, call: Call) -> Answer:
        """Return whether everything up to a token is processed, or everything that the sources have produced."""
        token, wait_s = call.query.get("token"), call.wait_s or 0.0
        if (token is not None) == call.flag("sources"):
            raise bad_request(
                "give either token, the text of Offsets such as the token of a checkpoint, or sources=true for the end of "
                "all sources"
            )
        if token is None:
            return _waited(call, lambda: self._app.wait_for_completion(timeout=wait_s))
        return _waited(call, lambda: self._app.wait_for(token, timeout=wait_s))

    def _idle(self, call: Call) -> Answer:
        """Return whether everything is processed, and nothing has come for some time."""
        wait_s = call.wait_s
        if wait_s is None:
            raise bad_request("wait is missing: give the seconds to wait, idle_interval or more")
        idle_s, poll_s = call.seconds("idle_interval", 5.0), call.seconds("poll_interval", 0.2)
        return _waited(call, lambda: self._app.wait_for_idle(idle_s, wait_s, poll_s))

    def _end(self, call: Call) -> Answer:
        """Return whether the application has ended, and is not being restarted."""
        until = time.monotonic() + (call.wait_s or 0.0)
        while not self._has_ended():
            if time.monotonic() >= until or call.left.wait(_LOOK_S):
                return Answer({"ended": False, "error": None}, 202)
        return Answer({"ended": True, "error": described_status(self._app, self._inside)["error"]})

    def _has_ended(self) -> bool:
        app = self._app
        if app.status.is_active or app.desired_status is not ApplicationStatus.STOPPED or self._restarting.locked():
            return False
        try:
            # The program may restart it, too.
            return app.wait(0.0)
        except Exception:  # noqa: BLE001 - the error that has ended it, which /status shows
            return True

    def _config(self, call: Call) -> Answer:
        # Options of clients and of Spark are left out: their values may be secrets that nothing masks.
        shown = {name: _shown(value) for name, value in self._inside.connection if value is not None}
        return Answer({**self._app.config.model_dump(mode="json"), "connection": shown})

    def _topology(self, call: Call) -> Answer:
        chosen = call.query.get("format", "json")
        if chosen == "text":
            return Answer(self._app.describe())
        config = self._app.config
        data = TopologyData.of(self._app.topology, config.consumer_group, changelogs=config.use_changelog_topics)
        if chosen == "mermaid":
            return Answer(data.as_mermaid())
        if chosen == "json":
            return Answer(data.as_dict())
        raise bad_request(f"format must be text, mermaid or json, got {one_line(chosen)!r}")

    def _scrape(self, call: Call) -> Answer:
        body, content_type = self._metrics.scrape(call.accept)
        return Answer(body, content_type=content_type)

    def _checkpoint_status(self, call: Call) -> Answer:
        return Answer(_of_checkpoint(self._app.checkpoint_status(call.path["number"])))

    # -- Changing ----------------------------------------------------------------------------------------------------

    def _move(self, change: Callable[..., None], call: Call) -> Answer:
        """Pause or resume the application, or one topic."""
        topic = call.path.get("topic")
        try:
            change(topic, timeout=call.wait_s or 0.0)
        except ApplicationTimeoutError:
            return self._wanted(done=False)
        except ArgumentValueError as error:
            raise _not_found(error) from None
        return self._wanted(done=True)

    def _move_source(self, change: Callable[[str], None], call: Call) -> Answer:
        try:
            change(call.path["source"])
        except ArgumentValueError as error:
            raise _not_found(error) from None
        return self._wanted(done=True)

    def _checkpoint(self, call: Call) -> Answer:
        wait_s = call.wait_s
        checkpoint = self._app.checkpoint(wait=False)
        if wait_s is not None and checkpoint.status == "in progress":
            try:
                checkpoint = self._app.checkpoint(timeout=wait_s)
            except ApplicationTimeoutError:
                checkpoint = self._app.checkpoint_status(checkpoint.number)
        status = 202 if checkpoint.status == "in progress" else 200
        return Answer(_of_checkpoint(checkpoint), status, headers={"Location": f"/checkpoints/{checkpoint.number}"})

    def _stop(self, call: Call) -> Answer:
        fail, wait_s = call.flag("fail"), call.wait_s
        if not self._app.status.is_active and self._app.desired_status is ApplicationStatus.STOPPED:
            # A stop before a run would end the next run.
            return self._wanted(done=True)
        try:
            self._app.stop(fail=fail, wait=wait_s is not None, timeout=wait_s)
        except ApplicationTimeoutError:
            return self._wanted(done=False)
        return self._wanted(done=wait_s is not None)

    def _restart(self, call: Call) -> Answer:
        wait_s = call.wait_s
        if not self._may_restart():
            raise ApplicationStateError(
                "the application was started by run(), which returns when it stops, so it cannot be restarted: start it with "
                "start(), or restart its process"
            )
        if not self._restarting.acquire(blocking=False):
            raise ApplicationStateError("the application is already being restarted")
        failures: list[Exception] = []

        def restart() -> None:
            try:
                self._app.restart()
            except Exception as error:  # noqa: BLE001 - passed to the caller, and in the log
                failures.append(error)
                logger.error("the application could not be restarted: %s: %s", type(error).__name__, error)
            finally:
                self._restarting.release()

        thread = threading.Thread(target=restart, name="streamrt-restart", daemon=True)
        thread.start()
        if wait_s is not None:
            thread.join(wait_s)
        if failures:
            raise failures[0]
        return self._wanted(done=not thread.is_alive(), wanted=ApplicationStatus.RUNNING if thread.is_alive() else None)

    def _wanted(self, *, done: bool, wanted: ApplicationStatus | None = None) -> Answer:
        """Return the state that is wanted, with status 202 while it is not reached."""
        app = self._app
        body = {
            "status": app.status.value,
            "desired_status": (wanted or app.desired_status).value,
            "paused_topics": sorted(app.paused_topics),
            "done": done,
        }
        return Answer(body, 200 if done else 202)


def _waited(call: Call, wait: Callable[[], None]) -> Answer:
    """Return whether a wait has ended before its time was over, and why not. It ends when its client disconnects."""
    try:
        with ended_by(call.left):
            wait()
    except ApplicationTimeoutError as error:
        return Answer({"done": False, "reason": one_line(error)}, 202)
    return Answer({"done": True, "reason": ""})


def _not_found(error: Exception) -> Problem:
    return Problem(404, type(error).__name__, str(error), "use one of the names in the message")


def _shown(value: object) -> str | int | float:
    """Return a setting of the connection for JSON; secrets mask themselves as texts."""
    return value if isinstance(value, str | int | float) else str(value)


def _of_checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "number": checkpoint.number,
        "status": checkpoint.status,
        "offsets": [
            {"topic": partition.topic, "partition": partition.partition, "offset": offset}
            for partition, offset in sorted(checkpoint.offsets.items())
        ],
        "token": str(checkpoint.offsets),
        "error": checkpoint.error,
    }
