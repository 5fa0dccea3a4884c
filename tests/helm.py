"""Helm for tests, and the plain manifests: `python -m tests.helm` renders them again.

Helm comes as a library, from Maven Central as other Java libraries do. A library written in Go stays in its process for good,
so it is loaded into a process of its own: `python -m tests.helm template CHART NAME VALUES` and `... lint CHART`. It takes
longer to unpack than Helm works, so the caller unpacks it once.
"""

import atexit
import ctypes
import functools
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from streamrt.jvm.jars import Jar, provide_jars

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "helm" / "streamrt"
PLAIN = ROOT / "deploy" / "kubernetes"
# The version of Kubernetes that Helm renders for.
KUBERNETES = "v1.34.0"
KINDS = ("stateless", "stateful")
HEADER = """\
# {title}
# Rendered from the chart in deploy/helm/streamrt; a test compares them. Replace the image, the broker, the group, and
# the Secret `shop-control`, which holds the token of the control server: see docs/deployment-kubernetes.md.
"""
TITLES = {
    "stateless": "An application without state: a Deployment.",
    "stateful": "An application with state: a StatefulSet, with a volume for each instance.",
}
# By processor; of the project helm-java, which builds Helm's own code.
LIBRARIES = {
    "x86_64": Jar(
        "com.marcnuri.helm-java",
        "linux-amd64",
        "0.0.21",
        28_492_007,
        "a01b3a7a746e67ac9541d147dabcea0b295ea1cbb0c456a3f2f5b911ce75bf7a",
    ),
}
_VARIABLE = "STREAMRT_TEST_HELM"
"""The library, where it is unpacked."""
AVAILABLE = platform.system() == "Linux" and platform.machine() in LIBRARIES
_TEMPLATE = (
    *("name", "version", "chart", "namespace", "kubeVersion", "-dependencyUpdate", "-skipCRDs", "values", "setFiles"),
    *("valuesFiles", "certFile", "keyFile", "caFile", "-insecureSkipTlsVerify", "-plainHttp", "keyring", "-debug"),
    "repositoryConfig",
)


class HelmError(Exception):
    """Helm has refused something."""


def template(name: str, values: Path, chart: Path = CHART) -> str:
    """Return what Helm makes of a chart.

    Args:
        name: the name of the release.
        values: a file with values.
        chart: the folder of the chart.

    Raises:
        HelmError: if it refuses the chart or the values.
    """
    return _apart("template", str(chart), name, str(values))


def lint(chart: Path = CHART) -> str:
    """Return what Helm says of a chart."""
    return _apart("lint", str(chart))


def plain(kind: str) -> str:
    """Return the plain manifests of an application with or without state."""
    rendered = template("shop", CHART / "ci" / f"{kind}-values.yaml")
    lines = [line for line in rendered.splitlines() if not line.startswith("# Source:")]
    return HEADER.format(title=TITLES[kind]) + "\n".join(lines).strip() + "\n"


def _apart(*arguments: str) -> str:
    command = [sys.executable, "-m", "tests.helm", *arguments]
    environment = {**os.environ, _VARIABLE: _library()}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise HelmError(done.stderr.strip() or f"exit code {done.returncode}")
    return done.stdout


@functools.cache
def _library() -> str:
    """Unpack the library until this process ends, unless another one has done so; return its path."""
    given = os.environ.get(_VARIABLE)
    if given:
        return given
    [jar] = provide_jars([LIBRARIES[platform.machine()]])
    directory = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    with zipfile.ZipFile(jar) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".so")]
        return archive.extract(name, directory)


class _Result(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_char_p) for name in ("out", "err", "stdOut", "stdErr"))


def _options(names: tuple[str, ...], **given: str) -> Any:
    """Return a structure of strings, and of numbers where the name begins with a dash."""
    fields = [(name.lstrip("-"), ctypes.c_int if name.startswith("-") else ctypes.c_char_p) for name in names]
    shape: Any = type("Options", (ctypes.Structure,), {"_fields_": fields})
    return shape(**{name: value.encode() for name, value in given.items()})


def _run(command: str, chart: str, *rest: str) -> int:
    library = ctypes.CDLL(_library())
    if command == "lint":
        function, options = library.Lint, _options(("path", "-strict", "-quiet"), path=chart)
    else:
        release, values = rest
        given = {"name": release, "valuesFiles": values, "kubeVersion": KUBERNETES, "namespace": "default"}
        function, options = library.Template, _options(_TEMPLATE, chart=chart, **given)
    function.restype = _Result
    result = function(ctypes.byref(options))
    print((result.out or b"").decode())
    print((result.err or b"").decode(), file=sys.stderr)
    return int(bool(result.err))


def main() -> int:
    """Render the plain manifests, or call Helm; return an exit code."""
    if len(sys.argv) > 1:
        return _run(*sys.argv[1:])
    for kind in KINDS:
        (PLAIN / f"{kind}.yaml").write_text(plain(kind))
    return 0


if __name__ == "__main__":
    sys.exit(main())
