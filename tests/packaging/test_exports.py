"""Rules about names, packages and imports."""

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_origin

import grimp
import pytest

import streamrt

ROOT = Path(__file__).resolve().parent.parent.parent
# Top-level folders that are imported below `streamrt`.
MOVED = ("connectors", "serializers", "state")
# The folder of programs that lies in the package, so that `streamrt examples` finds them.
PROGRAMS = "examples"


def pyproject() -> dict[str, Any]:
    try:
        toml = importlib.import_module("tomllib")
    except ModuleNotFoundError:  # Python 3.10; pytest brings the other one there
        toml = importlib.import_module("tomli")
    settings: dict[str, Any] = toml.loads((ROOT / "pyproject.toml").read_text())
    return settings


def packages_on_disk() -> set[str]:
    found = set()
    for top in ("streamrt", *MOVED):
        for folder, _, files in os.walk(ROOT / top):
            if "__init__.py" in files:
                name = ".".join(Path(folder).relative_to(ROOT).parts)
                found.add(name if top == "streamrt" else f"streamrt.{name}")
    return found


def sources(*folders: str) -> Iterator[Path]:
    """Yield the Python files in folders; links are not followed, so each file comes once."""
    for folder in folders:
        for place, _, files in os.walk(ROOT / folder):
            yield from (Path(place, file) for file in files if file.endswith(".py"))


PACKAGES = sorted(packages_on_disk())


def public_names() -> list[tuple[str, str]]:
    modules = {name: importlib.import_module(name) for name in PACKAGES}
    return [(name, exported) for name, module in modules.items() for exported in getattr(module, "__all__", ())]


PUBLIC = public_names()


def test_the_list_of_packages_is_what_is_on_disk() -> None:
    setuptools = pyproject()["tool"]["setuptools"]
    assert sorted(setuptools["packages"]) == sorted([*PACKAGES, f"streamrt.{PROGRAMS}"])
    expected = {"streamrt": "streamrt", **{f"streamrt.{name}": name for name in (*MOVED, PROGRAMS)}}
    nested = {name: path for name, path in setuptools["package-dir"].items() if name not in expected}
    assert {name: setuptools["package-dir"][name] for name in expected} == expected
    assert all((ROOT / path / "__init__.py").exists() for path in nested.values())


def test_files_of_other_kinds_are_packaged() -> None:
    patterns = pyproject()["tool"]["setuptools"]["package-data"]
    packaged = {
        path.resolve()
        for package, globs in patterns.items()
        for pattern in globs
        for path in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    found: set[Path] = set()
    for top in ("streamrt", *MOVED, PROGRAMS):
        for folder, _, files in os.walk(ROOT / top):
            found.update(Path(folder, file) for file in files if not file.endswith((".py", ".pyc")))
    assert found == packaged


@pytest.mark.parametrize("name", [*MOVED, PROGRAMS])
def test_the_links_in_the_package_are_relative(name: str) -> None:
    link = ROOT / "streamrt" / name
    assert link.is_symlink()
    assert str(link.readlink()) == f"../{name}"
    assert link.samefile(ROOT / name)


def test_no_module_imports_the_package_that_it_is_in() -> None:
    # Such an import closes a cycle that import-linter does not see: it compares modules with others of the same package.
    graph = grimp.build_graph("streamrt", cache_dir=None)
    closing = {
        f"{module} -> {package}"
        for module in graph.modules
        for package in graph.find_modules_directly_imported_by(module)
        if module.startswith(f"{package}.") and not module.endswith(".__main__")
    }
    assert closing == set()


@pytest.mark.parametrize(("package", "name"), PUBLIC, ids=lambda part: str(part))
def test_an_exported_name_resolves_and_is_documented(package: str, name: str) -> None:
    item = getattr(importlib.import_module(package), name)
    # Constants and type aliases have no docstring of their own; Python 3.10 takes some aliases for classes.
    if get_origin(item) is None and (inspect.isclass(item) or inspect.isroutine(item)):
        own = item.__doc__ if inspect.isclass(item) else inspect.getdoc(item)
        assert own, f"{package}.{name} has no docstring"
        assert not own.startswith(f"{name}("), f"{package}.{name} has a generated docstring only"


def test_the_names_of_the_front_page_are_exported() -> None:
    assert {name for package, name in PUBLIC if package == "streamrt"} == {
        *(
            "Application",
            "ApplicationStatus",
            "BroadcastContext",
            "BroadcastProcessFunction",
            "BroadcastTimerContext",
            "Catalog",
            "CoProcessFunction",
            "ConnectionConfig",
            "Context",
            "DeadLetters",
            "MessageContext",
            "Offsets",
            "ProcessFunction",
            "RestartPolicy",
            "Retry",
            "RocksDBOptions",
            "Schema",
            "State",
            "StateAnswer",
            "StateEntry",
            "StateSnapshots",
            "StreamingDataFrame",
        ),
        *("TaskContext", "TimeDomain", "TimerContext", "WatermarkStrategy"),
        *(
            "StreamingSeries",
            "StreamingTable",
            "Topic",
            "TopicConfig",
            "Tracing",
            "create_spark_session",
            "message_context",
            "set_message_context",
        ),
    }
    assert set(streamrt.__all__) <= set(dir(streamrt))
    with pytest.raises(AttributeError, match="module 'streamrt' has no attribute 'Aplication'"):
        streamrt.__getattr__("Aplication")


def test_clients_stores_and_joins_export_what_programs_construct_subclass_or_catch() -> None:
    exported: dict[str, set[str]] = {}
    for package, name in PUBLIC:
        exported.setdefault(package, set()).add(name)
    assert exported["streamrt.kafka"] == {
        *("AutoOffsetReset", "ConnectionConfig", "Consumer", "KafkaError", "KafkaException", "KafkaRequestError"),
        *("Producer", "TopicAdmin", "TopicConfig"),
    }
    assert exported["streamrt.state"] == {
        *("MemoryStore", "RocksDBOptions", "RocksDBStore", "Stamp", "State", "Store", "StoreIdentity"),
        *("AggregatingState", "ListState", "MapState", "ReducingState", "StateTtl", "StorePartition", "ValueState"),
    }
    assert exported["streamrt.joins"] == {
        *("AsOfHow", "BaseField", "BaseLookup", "IntervalHow", "LookupBuffer", "LookupUnavailableError", "OnMerge"),
        *("PostgresLookup", "PostgresLookupField", "PostgresLookupQueryField"),
        *("SQLiteLookup", "SQLiteLookupField", "SQLiteLookupQueryField", "TableField", "TableLookup"),
    }


def test_names_that_are_imported_late_have_a_home_and_an_import_for_type_checkers() -> None:
    for package in ("streamrt", "streamrt.testing"):
        module = importlib.import_module(package)
        assert sorted(module._HOMES) == sorted(module.__all__)
        tree = ast.parse(Path(str(module.__file__)).read_text())
        checked = {
            alias.name
            for branch in tree.body
            if isinstance(branch, ast.If)
            for statement in branch.body
            if isinstance(statement, ast.ImportFrom) and str(statement.module).startswith("streamrt")
            for alias in statement.names
        }
        assert checked == set(module.__all__)


def test_the_extra_all_has_what_users_of_any_other_extra_get() -> None:
    extras = pyproject()["project"]["optional-dependencies"]

    def reached(extra: str) -> set[str]:
        within = [line[len("streamrt[") : -1].split(",") for line in extras[extra] if line.startswith("streamrt[")]
        return {extra}.union(*(reached(name) for names in within for name in names))

    assert reached("all") == extras.keys() - {"demo", "dev"}


def test_the_version_is_that_of_the_project() -> None:
    assert streamrt.__version__ == pyproject()["project"]["version"]


@pytest.mark.slow
def test_every_module_and_package_says_what_it_is() -> None:
    texts = {path: path.read_text() for path in sources("streamrt", *MOVED) if path.stat().st_size}
    # To parse them all takes a second, and nearly all begin with it.
    others = {path: text for path, text in texts.items() if not re.match(r'"""\w', text)}
    assert [str(path) for path, text in others.items() if not ast.get_docstring(ast.parse(text))] == []


@pytest.mark.slow
def test_no_module_imports_a_moved_package_by_its_bare_name() -> None:
    # `state.x` and `streamrt.state.x` would be two modules, with two copies of each class.
    # To parse all files takes seconds, so only those are that may have such a line.
    suspicious = re.compile(rf"^\s*(import\b.*\b({'|'.join(MOVED)})\b|from\s+({'|'.join(MOVED)}|\.))", re.MULTILINE)
    wrong = []
    for path in sources("streamrt", *MOVED, PROGRAMS, "tests", "bench"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if suspicious.search(text) else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = ["relative"] if node.level else [node.module or ""]
            if any(name.split(".")[0] in (*MOVED, "relative") for name in names):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}" if isinstance(node, ast.stmt) else str(path))
    assert wrong == []


def test_no_module_has_what_python_3_10_cannot_import() -> None:
    # mypy and ruff are set to 3.10, and see none of these: a NamedTuple with another base, and a class of the library that
    # takes no type argument there.
    newer = re.compile(r"^class \w+\((NamedTuple,|.*, NamedTuple\b)|\bTopologicalSorter\[.*\]\(", re.MULTILINE)
    texts = {path.relative_to(ROOT): path.read_text() for path in sources("streamrt", *MOVED, PROGRAMS)}
    assert [f"{path}: {found[0]}" for path, text in texts.items() if (found := newer.search(text))] == []


HEAVY = ("pyspark", "py4j", "pandas", "numpy", "pyarrow", "confluent_kafka", "pydantic", "rich")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import streamrt", HEAVY),
        ("import streamrt.testing.plugin", HEAVY),
        ("from streamrt import message_context, MessageContext", HEAVY),
        # What a worker imports to unpickle and run operators.
        ("import streamrt.runtime", ("pyspark", "py4j", "pandas", "numpy", "pyarrow")),
        ("from streamrt import Application", ("pyspark", "py4j", "pandas", "numpy", "pyarrow", "sqlglot")),
        ("import streamrt.control.server", ("pyspark", "py4j", "pandas", "numpy", "pyarrow", "sqlglot")),
        ("from streamrt.testing import TopologyTestDriver", ("pyspark", "py4j", "pandas", "sqlglot")),
    ],
)
def test_imports_are_light(statement: str, absent: tuple[str, ...]) -> None:
    program = f"{statement}; import sys; print(sorted({{*{absent!r}, *{MOVED!r}}} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
