"""`streamrt state snapshots`: the snapshots of state in an object store, and whether a restore could use them."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamrt.cli.output import JsonOption, note, plural, print_json, print_table, time_text
from streamrt.cli.programs.run_settings import SettingsOption, TokenFileOption, configured_application

if TYPE_CHECKING:
    from streamrt.application.snapshot_listing import StorePlace
    from streamrt.runtime.tasks.stores.snapshot_rules import SnapshotRules
    from streamrt.state.snapshots import ListedSnapshot, StateSnapshots

__all__ = ["snapshots"]

_EXAMPLE = "shop:app, or a URL such as s3://bucket/prefix"


def snapshots(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="MODULE:APP|URL", help=f"An application, or where the snapshots are: {_EXAMPLE}.")
    ],
    verify: Annotated[bool, typer.Option("--verify", help="Read all files, and compare their checksums.")] = False,
    settings: SettingsOption = None,
    token_file: TokenFileOption = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to wait for a broker.")
    ] = 10.0,
    as_json: JsonOption = False,
) -> None:
    """List snapshots of state; exit code 1 if one is damaged.

    For an application, also whether a restore could use them now. With a URL,
    they are not compared with Kafka, and credentials come from the environment.
    """
    from streamrt.errors import ConfigurationError
    from streamrt.state.snapshots import StateSnapshots

    now = time.time_ns() // 1_000_000
    if "://" in target:
        entries = _list(StateSnapshots.parse(target), None, None, now, verify=verify)
    elif ":" not in target:
        folder = Path(target).absolute().as_uri()
        raise ConfigurationError(
            f"{target!r} is neither an application nor a URL: give shop:app, or for a directory {folder}"
        )
    else:
        from streamrt.app import definition_of, environment_of

        with configured_application(context, target, settings, token_file) as loaded:
            definition, environment = definition_of(loaded), environment_of(loaded)
            kept = definition.snapshots
            if kept is None:
                raise ConfigurationError(f"{target} keeps no snapshots: set state_snapshots, or give a URL")
            from streamrt.application.snapshot_listing import restore_rules

            rules = restore_rules(definition, environment, now, timeout)
            entries = _list(kept, definition.config.consumer_group, rules, now, verify=verify)
    if as_json:
        print_json({"snapshots": entries})
    else:
        _print(entries)
    if not all(entry["complete"] for entry in entries):
        raise typer.Exit(1)


def _list(
    settings: "StateSnapshots",
    group: str | None,
    rules: "dict[StorePlace, SnapshotRules] | None",
    now: int,
    *,
    verify: bool,
) -> list[dict[str, Any]]:
    from streamrt.errors import ConfigurationError
    from streamrt.secret import masked
    from streamrt.state.snapshots import SnapshotStorage, list_snapshots

    try:
        listed = list(list_snapshots(SnapshotStorage(settings), group, verify=verify))
    except Exception as error:
        # Object stores have exceptions of their own.
        reason = masked(str(error) or type(error).__name__)
        raise ConfigurationError(f"the snapshots at {settings.url} cannot be listed: {reason}") from error
    return [_entry(each, rules, now) for each in listed]


def _entry(found: "ListedSnapshot", rules: "dict[StorePlace, SnapshotRules] | None", now: int) -> dict[str, Any]:
    manifest, reason = found.manifest, found.damage
    complete, fits = not reason, None
    if rules is not None and manifest is not None:
        wanted = rules.get((found.topic, found.store, found.partition))
        unfit = "the application has no such store" if wanted is None else wanted.refusal(manifest.stamp)
        fits = complete and not unfit
        reason = reason or unfit
    return {
        "group": found.group,
        "topic": found.topic,
        "store": found.store,
        "partition": found.partition,
        "changelog_id": found.changelog_id,
        "offset": found.offset,
        "created": None if manifest is None else time_text(manifest.created_at),
        "age_s": None if manifest is None else max(0, now - manifest.created_at) // 1_000,
        "size": None if manifest is None else manifest.size,
        "complete": complete,
        "fits": fits,
        "reason": reason or None,
    }


def _print(entries: list[dict[str, Any]]) -> None:
    rows = [
        [
            entry["group"],
            f"{entry['store']} of {entry['topic']}[{entry['partition']}]",
            entry["offset"],
            entry["age_s"],
            entry["size"],
            "damaged"
            if not entry["complete"]
            else {None: "complete", True: "fits", False: "does not fit"}[entry["fits"]],
        ]
        for entry in entries
    ]
    print_table(["GROUP", "STORE", "OFFSET", "AGE (S)", "BYTES", "STATUS"], rows)
    for entry in entries:
        if entry["reason"]:
            place = f"{entry['store']} of {entry['topic']}[{entry['partition']}]"
            note(f"{place} at offset {entry['offset']}: {entry['reason']}")
    note(plural(len(entries), "snapshot"))
