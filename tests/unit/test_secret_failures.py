"""Failures that end an application show no secret, wherever they come from."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import streamrt.errors
from streamrt import Application, ApplicationStatus, ConnectionConfig, RestartPolicy
from streamrt.connectors import BatchingSink
from streamrt.connectors.credentials import Credential
from streamrt.errors import ConfigurationError, RunnerError, StateError, StreamRTError, TransactionError
from streamrt.runtime.link_messages import Failed
from streamrt.runtime.report import Failure, Report
from streamrt.runtime.sources.process import failure_report
from streamrt.runtime.tasks.error_handling import record_task_error
from streamrt.secret import Secret, collect_secrets, conceal, concealed, masked, stand_in
from streamrt.serializers import SchemaRegistryClientConfig
from streamrt.slots.worker_link import _dump_message
from streamrt.spark.spark_errors import spark_cause
from streamrt.testing import TopologyTestDriver
from tests.support import replace_methods
from tests.unit.played import Played
from tests.unit.tasks import TASK

CANARY = "canary-5d0e77"


@pytest.fixture(autouse=True)
def sent() -> None:
    """Send the secret, as those of an application are sent to its tasks."""
    with collect_secrets():
        pickle.dumps(Secret(CANARY))


def refuse(*_: Any, **__: Any) -> Any:
    raise ConnectionError(f"cannot log in with {CANARY}")


class Refusing(BatchingSink):
    def write(self, batch: Any) -> None:
        refuse()


def in_a_function(app: Application) -> None:
    app.dataframe(app.topic("orders")).apply(refuse)


def in_a_deserializer(app: Application) -> None:
    app.dataframe(app.topic("orders", timestamp_extractor=refuse))


def in_a_sink(app: Application) -> None:
    app.dataframe(app.topic("orders")).sink(Refusing())


def in_a_producer(app: Application) -> None:
    app.dataframe(app.topic("orders")).to_topic(app.topic("out"), key=refuse)


def in_a_cause(app: Application) -> None:
    def wrap(value: Any) -> Any:
        try:
            refuse()
        except ConnectionError as error:
            raise ValueError({"login": CANARY}) from error

    app.dataframe(app.topic("orders")).apply(wrap)


def in_a_file(app: Application) -> None:
    def read(value: Any) -> Any:
        raise FileNotFoundError(2, "no such file", f"/run/{CANARY}")

    app.dataframe(app.topic("orders")).apply(read)


def everything(error: BaseException | None) -> str:
    """Return the messages of an error and of its causes."""
    return "" if error is None else f"{error}{error!r}{everything(error.__cause__)}{everything(error.__context__)}"


@pytest.mark.parametrize("mode", ["micro-batch", "resident"])
@pytest.mark.parametrize("fails", [in_a_function, in_a_deserializer, in_a_sink, in_a_producer, in_a_cause, in_a_file])
def test_failures_of_tasks(fails: Callable[[Application], None], mode: Any) -> None:
    app = Application(broker_address="unused.invalid:9092", loglevel=None, processing_mode=mode)
    fails(app)
    with TopologyTestDriver(app) as driver, pytest.raises(StreamRTError, match=r"\*\*\*") as raised:
        driver.pipe("orders", {"id": 1})
    assert CANARY not in everything(raised.value)


def test_failures_in_callbacks() -> None:
    app = Application(broker_address="unused.invalid:9092", loglevel=None, on_processing_error=refuse)
    in_a_function(app)
    with TopologyTestDriver(app) as driver, pytest.raises(StreamRTError, match=r"\*\*\*") as raised:
        driver.pipe("orders", {"id": 1})
    assert CANARY not in everything(raised.value)


@pytest.mark.parametrize("trouble", [TransactionError(f"refused: {CANARY}"), StateError(f"refused: {CANARY}")])
def test_troubles_of_tasks(trouble: Exception) -> None:
    class OfTask:
        id = TASK

    report = Report()
    record_task_error(report, OfTask(), trouble)  # type: ignore[arg-type]
    assert report.interrupted or report.failure
    assert CANARY not in repr(report)


def test_failures_of_sources() -> None:
    with pytest.raises(ConnectionError) as raised:
        refuse()
    report = failure_report(raised.value)
    assert report["error"] == "ConnectionError: cannot log in with ***"
    assert "Traceback" in report["traceback"]
    assert CANARY not in report["traceback"]


def failing(failure: Exception, starts: list[int] | None = None) -> Application:
    """Return an application whose runs fail, and count themselves."""
    app = Application("unused.invalid:9092", loglevel=None)
    app.dataframe(app.topic("orders"))

    def process(*_: Any, **__: Any) -> None:
        if starts is None:
            app._state.control.works()
        else:
            starts.append(1)
        raise failure

    replace_methods(app._execution, process=process)
    return app


class Unmaskable(Exception):  # noqa: N818 - a user's exception
    def __str__(self) -> str:
        return f"it is {CANARY}"


@pytest.mark.parametrize(
    "failure",
    [ConnectionError(f"refused: {CANARY}"), ValueError({"key": CANARY}), OSError(2, "no file", CANARY), Unmaskable()],
)
def test_failures_of_the_driver(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    app = failing(failure)
    with pytest.raises(Exception, match=r"\*\*\*") as raised:
        app.run()
    assert app.status is ApplicationStatus.FAILED
    assert CANARY not in everything(raised.value) + everything(app.error) + caplog.text


def test_what_spark_says() -> None:
    assert spark_cause(Exception(f"Job aborted\n  File ...\nOSError: no login {CANARY}")) == "OSError: no login ***"


def test_what_is_masked() -> None:
    secrets = {name: f"{CANARY[::-1]}-{name}" for name in ("sasl", "registry", "made", "static", "option", "hadoop")}
    ConnectionConfig(bootstrap_servers="k:9092", sasl_username="shop", sasl_password=secrets["sasl"])
    SchemaRegistryClientConfig(url=f"http://shop:{secrets['registry']}@r:8081")
    Credential(lambda: secrets["made"], "x").reveal()
    Credential(secrets["static"], "x")
    Played(
        control=None,
        producer_extra_config={"ssl.key.password": secrets["option"], "client.id": "the-client"},
        spark_config={"spark.hadoop.fs.s3a.secret.key": secrets["hadoop"]},
    )
    for secret in secrets.values():
        assert masked(f"refused: {secret}, the-client") == "refused: ***, the-client"
    conceal("short")
    assert masked("a short text") == "a short text"


def test_errors_are_masked_in_place() -> None:
    cause = KeyError(CANARY)
    error = ValueError("no", CANARY)
    error.__cause__, error.__context__ = cause, error
    error.__notes__ = [f"with {CANARY}"]  # type: ignore[attr-defined]
    assert concealed(error) is error
    assert (error.args, cause.args, error.__notes__) == (("no", "***"), ("***",), ["with ***"])  # type: ignore[attr-defined]
    fine = OSError(2, "no file", "orders.csv")
    assert concealed(fine) is fine
    assert fine.filename == "orders.csv"
    assert concealed(Unmaskable()) is None
    outer = ValueError("outer")
    outer.__cause__ = Unmaskable()
    assert concealed(outer) is outer
    assert outer.__cause__ is None


class Restoring(Exception):  # noqa: N818 - a user's exception
    """Its pickle makes the text again, of an attribute."""

    def __init__(self, query: str) -> None:
        super().__init__(query)
        self.query = query

    def __reduce__(self) -> Any:
        return Restoring, (self.query,)


def test_pickles_restore_no_secret() -> None:
    outer = ValueError("outer")
    outer.__cause__ = Restoring(f"insert {CANARY}")
    assert Failure("processing", TASK, 7, "failed", Restoring(f"insert {CANARY}")).cause is None
    # Another process has masked it already.
    masked_before = concealed(Restoring(f"insert {CANARY}"))
    assert masked_before is not None
    assert Failure("processing", TASK, 7, "failed", masked_before).cause is None
    assert concealed(outer, sent=True) is outer
    assert everything(outer.__cause__) == ""
    fine = Restoring("insert 5")
    assert Failure("processing", TASK, 7, "failed", fine).cause is fine
    for error in (Restoring(f"insert {CANARY}"), masked_before):
        sent = pickle.loads(_dump_message(Failed(error))).error
        assert (type(sent), CANARY in everything(sent)) == (RunnerError, False)
        assert str(sent) == "Restoring: insert ***"


def test_which_options_are_secrets() -> None:
    found = {
        "ssl.key.pem": "-----BEGIN KEY-----",
        "ssl.key.password": "key-password",
        "sasl.oauthbearer.config": "principal=shop scope=orders",
        "sasl.oauthbearer.client.secret": "the-client-secret",
        "sasl.oauthbearer.assertion.private.key.passphrase": "a-passphrase",
    }
    of_spark = {
        "spark.hadoop.fs.s3a.secret.key": "the-secret-key",
        "spark.kubernetes.authenticate.submission.oauthToken": "the-oauth-token",
        "spark.ssl.keyPassword": "password-of-spark",
    }
    no_secrets = {"sasl.oauthbearer.token.endpoint.url": "https://login.example", "ssl.key.location": "/etc/shop.pem"}
    none_of_spark = {
        "spark.hadoop.fs.s3a.aws.credentials.provider": "org.example.ShopProvider",
        "spark.kubernetes.authenticate.oauthTokenFile": "/run/oauth/token-of-shop",
        "spark.shop.token.url": "https://tokens.example",
        "spark.shop.password.class": "org.example.Passwords",
    }
    Played(control=None, producer_extra_config={**found, **no_secrets}, spark_config={**of_spark, **none_of_spark})
    for text in [*found.values(), *of_spark.values()]:
        assert masked(f"refused: {text}") == "refused: ***"
    for text in [*no_secrets.values(), *none_of_spark.values()]:
        assert masked(f"ClassNotFoundException: {text}") == f"ClassNotFoundException: {text}"


class OfUserError(ConfigurationError):
    """Its text is made of an attribute."""

    def __init__(self) -> None:
        super().__init__("no table")
        self.login = CANARY

    def __str__(self) -> str:
        return f"no table for {self.login}"


class FixedError(ConnectionError):
    """Its arguments cannot be changed."""

    @property
    def args(self) -> Any:  # type: ignore[override]
        return (f"refused: {CANARY}",)

    def __str__(self) -> str:
        return f"refused: {CANARY}"


def test_what_is_not_masked_in_place_keeps_its_class_and_is_not_restarted(caplog: pytest.LogCaptureFixture) -> None:
    starts: list[int] = []
    app = failing(OfUserError(), starts)
    with pytest.raises(ConfigurationError, match=r"OfUserError: no table for \*\*\*") as raised:
        app.start(restart=RestartPolicy(max_failures=2))
    assert len(starts) == 1
    assert CANARY not in everything(raised.value) + everything(app.error) + caplog.text


def noted() -> Exception:
    error = ConnectionError("refused")
    error.__notes__ = (f"with {CANARY}",)  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize("failure", [FixedError(), noted()])
def test_a_run_ends_with_an_error_that_refuses_to_be_changed(failure: Exception) -> None:
    app = failing(failure)
    with pytest.raises(Exception, match="refused") as raised:
        app.run()
    assert app.status is ApplicationStatus.FAILED
    assert CANARY not in everything(raised.value) + str(getattr(raised.value, "__notes__", ""))


@pytest.mark.parametrize(("error", "kind"), [(OfUserError(), ConfigurationError), (FixedError(), RunnerError)])
def test_stand_ins_have_the_nearest_class(error: Exception, kind: type[Exception]) -> None:
    assert concealed(error) is None
    made = stand_in(error)
    assert type(made) is kind
    assert type(pickle.loads(_dump_message(Failed(error))).error) is kind
    assert CANARY not in everything(made)


@pytest.mark.parametrize("name", streamrt.errors.__all__)
def test_stand_ins_of_each_class_have_the_text(name: str) -> None:
    kind = getattr(streamrt.errors, name)
    error = kind.__new__(kind)
    error.args = (f"refused: {CANARY}",)
    made = stand_in(error)
    assert isinstance(made, StreamRTError)
    assert CANARY not in everything(made)
