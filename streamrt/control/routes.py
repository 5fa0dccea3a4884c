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
from streamrt.common.untrusted import whole_number
from streamrt.control.calls import Answer, Call, Calls, bad_request, http_problem
from streamrt.control.controlled import Controlled
from streamrt.control.dashboard import page_routes
from streamrt.control.metrics import ApplicationMetrics
from streamrt.control.overview import described_overview, described_status
from streamrt.control.problems import Problem
from streamrt.control.sql_routes import SQLRoutes
from streamrt.control.state import KEY_PARAMETERS, SCAN_PARAMETERS, StateRoutes
from streamrt.errors import ApplicationStateError, ApplicationTimeoutError, ArgumentValueError, reference_of
from streamrt.runtime.driver.life.checkpoints import Checkpoint
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus
from streamrt.runtime.driver.life.waits import ended_by
from streamrt.topology.diagram import TopologyData

__all__ = ["Routes"]

logger = logging.getLogger("streamrt")

_LOOK_S = 0.1
_READY = (ApplicationStatus.RUNNING, ApplicationStatus.PAUSED)


class Routes:
    """The routes of one application.

    Args:
        app: the application.
        may_restart: returns whether the application stays when it stops, so that it can be started again.
    """

    def __init__(self, app: Controlled, may_restart: Callable[[], bool]) -> None:
        self._app = app
        self._may_restart = may_restart
        self._metrics = ApplicationMetrics(app, lambda: app.lag.sample, lambda: not self._find_reasons())
        self._restarting = threading.Lock()
        # Apart, so that many requests that wait leave room for probes.
        self._waits = Calls()
        self._reads = Calls()
        self._probes = Calls()
        self._calls = Calls(self._waits)
        self._state = StateRoutes(app)
        self._sql = SQLRoutes(app)

    def table(self) -> list[Route]:
        """Return all routes."""
        get, post, read = self._calls.get, self._calls.post, self._reads.get
        return [
            *page_routes(),
            *self._sql.table(),
            Route("/live", self._get_live, methods=["GET"]),
            # Apart, as other requests must not keep supervisors from their answer.
            self._probes.get("/ready", self._get_ready),
            get("/status", self._get_status),
            get("/overview", self._get_overview),
            get("/config", self._get_config),
            get("/progress", self._get_progress),
            get("/stats", self._get_stats, "wait"),
            get("/completion", self._get_completion, "token", "sources", "wait"),
            get("/idle", self._get_idle, "idle_interval", "poll_interval", "wait"),
            get("/end", self._get_end, "wait"),
            get("/topology", self._get_topology, "format"),
            get("/metrics", self._get_metrics),
            get("/checkpoints/{number}", self._checkpoint_status),
            read("/state", self._state.stores),
            read("/state/{store}", self._state.scan, *SCAN_PARAMETERS),
            read("/state/{store}/{key:path}", self._state.key, *KEY_PARAMETERS),
            post("/checkpoint", self._post_checkpoint, "wait"),
            post("/pause", partial(self._post_change, self._app.operations.pause), "wait"),
            post("/resume", partial(self._post_change, self._app.operations.resume), "wait"),
            post("/stop", self._post_stop, "fail", "wait"),
            post("/restart", self._post_restart, "wait"),
            post("/topics/{topic}/pause", partial(self._post_change, self._app.operations.pause), "wait"),
            post("/topics/{topic}/resume", partial(self._post_change, self._app.operations.resume), "wait"),
            self._waits.post(
                "/sources/{source:path}/pause", partial(self._move_source, self._app.operations.pause_source)
            ),
            post("/sources/{source:path}/resume", partial(self._move_source, self._app.operations.resume_source)),
        ]

    def asgi(self) -> Starlette:
        """Return the application of starlette; it makes an answer of every error."""
        handlers: Any = {HTTPException: http_problem}
        application = Starlette(routes=self.table(), exception_handlers=handlers)
        application.router.redirect_slashes = False
        return application

    # -- Reading -----------------------------------------------------------------------------------------------------

    async def _get_live(self, request: Request) -> Response:
        # Not in a thread: as long as the server answers, the process lives.
        return JSONResponse({"live": True})

    def _get_ready(self, call: Call) -> Answer:
        reasons = self._find_reasons()
        body: dict[str, Any] = {"ready": not reasons}
        if call.known:
            body.update(status=self._app.state.status.value, reasons=reasons)
        return Answer(body, 503 if reasons else 200)

    def _find_reasons(self) -> list[str]:
        """Return why the application is not ready."""
        status = self._app.state.status
        if status not in _READY:
            waits = self._app.state.progress.snapshot().waiting_for if status.is_active else ""
            return [f"the application is {status.value}" + (f", and waits for {waits}" if waits else "")]
        return [str(stuck) for stuck in self._app.lag.stuck]

    def _get_status(self, call: Call) -> Answer:
        return Answer(described_status(self._app))

    def _get_overview(self, call: Call) -> Answer:
        return Answer(described_overview(self._app, self._app.lag.take_sample(), self._find_reasons()))

    def _get_progress(self, call: Call) -> Answer:
        return Answer(self._app.state.progress.snapshot().as_dict())

    def _get_stats(self, call: Call) -> Answer:
        wait_s = call.wait_s
        return Answer(
            (self._app.observation.stats() if wait_s is None else self._app.observation.stats(wait_s)).as_dict()
        )

    def _get_completion(self, call: Call) -> Answer:
        """Return whether everything up to a token is processed, or everything that the sources have produced."""
        token, wait_s = call.query.get("token"), call.wait_s or 0.0
        if (token is not None) == call.flag("sources"):
            raise bad_request(
                "give either token, the text of Offsets such as the token of a checkpoint, or sources=true for the end of "
                "all sources"
            )
        if token is None:
            return _answer_wait(call, lambda: self._app.observation.wait_for_completion(timeout=wait_s))
        return _answer_wait(call, lambda: self._app.observation.wait_for(token, timeout=wait_s))

    def _get_idle(self, call: Call) -> Answer:
        """Return whether everything is processed, and nothing has come for some time."""
        wait_s = call.wait_s
        if wait_s is None:
            raise bad_request("wait is missing: give the seconds to wait, idle_interval or more")
        idle_s, poll_s = call.seconds("idle_interval", 5.0), call.seconds("poll_interval", 0.2)
        return _answer_wait(call, lambda: self._app.observation.wait_for_idle(idle_s, wait_s, poll_s))

    def _get_end(self, call: Call) -> Answer:
        """Return whether the application has ended, and is not being restarted."""
        until = time.monotonic() + (call.wait_s or 0.0)
        while not self._has_ended():
            if time.monotonic() >= until or call.left.wait(_LOOK_S):
                return Answer({"ended": False, "error": None}, 202)
        return Answer({"ended": True, "error": described_status(self._app)["error"]})

    def _has_ended(self) -> bool:
        app = self._app
        if (
            app.state.status.is_active
            or app.state.desired_status is not ApplicationStatus.STOPPED
            or self._restarting.locked()
        ):
            return False
        try:
            # The program may also restart it.
            return app.operations.wait(0.0)
        except Exception:  # noqa: BLE001 - the error that has ended it, which /status shows
            return True

    def _get_config(self, call: Call) -> Answer:
        # Options of clients and of Spark are left out: their values may be secrets that nothing masks.
        shown = {name: _show_setting(value) for name, value in self._app.connection if value is not None}
        return Answer({**self._app.definition.config.model_dump(mode="json"), "connection": shown})

    def _get_topology(self, call: Call) -> Answer:
        chosen = call.query.get("format", "json")
        if chosen == "text":
            return Answer(self._app.definition.describe())
        config = self._app.definition.config
        data = TopologyData.of(
            self._app.definition.topology, config.consumer_group, changelogs=config.use_changelog_topics
        )
        if chosen == "mermaid":
            return Answer(data.as_mermaid())
        if chosen == "json":
            return Answer(data.as_dict())
        raise bad_request(f"format must be text, mermaid or json, got {one_line(chosen)!r}")

    def _get_metrics(self, call: Call) -> Answer:
        body, content_type = self._metrics.scrape(call.accept)
        return Answer(body, content_type=content_type)

    def _checkpoint_status(self, call: Call) -> Answer:
        try:
            number = whole_number(call.path["number"])
        except ValueError as error:
            raise Problem(
                404, "NotFound", f"the number of the checkpoint {error}", "use the number in Location"
            ) from None
        return Answer(_of_checkpoint(self._app.operations.checkpoint_status(number)))

    # -- Changing ----------------------------------------------------------------------------------------------------

    def _post_change(self, change: Callable[..., None], call: Call) -> Answer:
        """Pause or resume the application, or one topic."""
        topic = call.path.get("topic")
        try:
            change(topic, timeout=call.wait_s or 0.0)
        except ApplicationTimeoutError:
            return self._answer_wanted(done=False)
        except ArgumentValueError as error:
            raise _not_found(error) from None
        return self._answer_wanted(done=True)

    def _move_source(self, change: Callable[[str], None], call: Call) -> Answer:
        try:
            change(call.path["source"])
        except ArgumentValueError as error:
            raise _not_found(error) from None
        return self._answer_wanted(done=True)

    def _post_checkpoint(self, call: Call) -> Answer:
        wait_s = call.wait_s
        checkpoint = self._app.operations.checkpoint(wait=False)
        if wait_s is not None and checkpoint.status == "in progress":
            try:
                checkpoint = self._app.operations.checkpoint(timeout=wait_s)
            except ApplicationTimeoutError:
                checkpoint = self._app.operations.checkpoint_status(checkpoint.number)
        status = 202 if checkpoint.status == "in progress" else 200
        return Answer(_of_checkpoint(checkpoint), status, headers={"Location": f"/checkpoints/{checkpoint.number}"})

    def _post_stop(self, call: Call) -> Answer:
        fail, wait_s = call.flag("fail"), call.wait_s
        if not self._app.state.status.is_active and self._app.state.desired_status is ApplicationStatus.STOPPED:
            # A stop before a run would end the next run.
            return self._answer_wanted(done=True)
        try:
            self._app.operations.stop(fail=fail, wait=wait_s is not None, timeout=wait_s)
        except ApplicationTimeoutError:
            return self._answer_wanted(done=False)
        return self._answer_wanted(done=wait_s is not None)

    def _post_restart(self, call: Call) -> Answer:
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
                self._app.operations.restart()
            except Exception as error:  # noqa: BLE001 - passed to the caller, and in the log
                failures.append(error)
                logger.error(
                    "the application could not be restarted: %s: %s%s",
                    *(type(error).__name__, error, reference_of(error, "; ")),
                )
            finally:
                self._restarting.release()

        thread = threading.Thread(target=restart, name="streamrt-restart", daemon=True)
        thread.start()
        if wait_s is not None:
            thread.join(wait_s)
        if failures:
            raise failures[0]
        return self._answer_wanted(
            done=not thread.is_alive(), wanted=ApplicationStatus.RUNNING if thread.is_alive() else None
        )

    def _answer_wanted(self, *, done: bool, wanted: ApplicationStatus | None = None) -> Answer:
        """Return the state that is wanted, with status 202 while it is not reached."""
        app = self._app
        body = {
            "status": app.state.status.value,
            "desired_status": (wanted or app.state.desired_status).value,
            "paused_topics": sorted(app.state.paused_topics),
            "done": done,
        }
        return Answer(body, 200 if done else 202)


def _answer_wait(call: Call, wait: Callable[[], None]) -> Answer:
    """Return whether a wait has ended before its time was over, and why not. It ends when its client disconnects."""
    try:
        with ended_by(call.left):
            wait()
    except ApplicationTimeoutError as error:
        return Answer({"done": False, "reason": one_line(error)}, 202)
    return Answer({"done": True, "reason": ""})


def _not_found(error: Exception) -> Problem:
    return Problem.from_error(error, 404, "use one of the names in the message")


def _show_setting(value: object) -> str | int | float:
    """Return a setting of the connection for JSON; secrets mask themselves as strings."""
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
