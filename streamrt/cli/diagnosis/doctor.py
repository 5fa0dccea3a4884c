"""`streamrt doctor`: checks this machine and the cluster, and names a remedy for each problem."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from streamrt.cli.broker import BrokerOption, ConfigOption, TimeoutOption
from streamrt.cli.diagnosis.findings import Finding, Status
from streamrt.cli.output import JsonOption, echo, examples, plural, print_json
from streamrt.config import DEFAULT_STATE_DIR

__all__ = ["EXAMPLES", "doctor"]

EXAMPLES = examples(
    "streamrt doctor",
    "streamrt doctor --broker kafka:9092 --group shop --transactions",
    "streamrt doctor --json | jq '.findings[] | select(.status != \"ok\")'",
)
_COLORS = {Status.ok: "green", Status.warning: "yellow", Status.problem: "red"}


def doctor(
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 10.0,
    group: Annotated[
        str | None,
        typer.Option(envvar="STREAMRT_CONSUMER_GROUP", help="Also check that the user may use this consumer group."),
    ] = None,
    transactions: Annotated[
        bool,
        typer.Option(
            "--transactions",
            help="Also check transactions, by taking a transactional id of the group; brokers forget it after a week.",
        ),
    ] = False,
    state_dir: Annotated[
        Path, typer.Option(envvar="STREAMRT_STATE_DIR", file_okay=False, help="The state directory.")
    ] = Path(DEFAULT_STATE_DIR),
    as_json: JsonOption = False,
) -> None:
    """Check Python, Java, libraries, disk, broker, permissions and clock; exit code 1 if there is a problem.

    Nothing is changed, neither on this machine nor in the cluster, except with
    --transactions; and Kafka creates its topic for offsets for the check of
    --group, if no group ever committed.
    """
    findings = []
    for finding in _iterate_findings(broker, config, timeout, group, transactions, state_dir):
        findings.append(finding)
        if not as_json:
            _print_finding(finding)
    problems = sum(finding.status is Status.problem for finding in findings)
    warnings = sum(finding.status is Status.warning for finding in findings)
    if as_json:
        print_json(
            {"problems": problems, "warnings": warnings, "findings": [finding.as_dict() for finding in findings]}
        )
    else:
        echo(f"{plural(problems, 'problem')}, {plural(warnings, 'warning')}")
    if problems:
        raise typer.Exit(1)


def _iterate_findings(
    broker: str | None, config: Path | None, timeout: float, group: str | None, transactions: bool, state_dir: Path
) -> Iterator[Finding]:
    from streamrt.cli.diagnosis.findings_cluster import check_cluster
    from streamrt.cli.diagnosis.findings_machine import check_machine

    yield from check_machine(state_dir)
    yield from check_cluster(broker, config, timeout, group, transactions)


def _print_finding(finding: Finding) -> None:
    # typer.style is removed where stdout is not a terminal.
    status = typer.style(f"{finding.status.value:<8}", fg=_COLORS[finding.status])
    echo(f" {finding.name}: {finding.detail}", label=status)
    if finding.remedy:
        echo(f"         {finding.remedy}")
