"""Hostile bytes for every deserializer, and for what tables read, in processes with limits: `python -m tests.fuzz`."""

import random
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.forks import Forks
from tests.support import LONG

Fuzz = Callable[..., CompletedProcess[str]]
COUNTS = (
    {"deserializers": 1_000_000, "tables": 500_000, "hostile": 1_000_000}
    if LONG
    else {"deserializers": 10_000, "tables": 5_000, "hostile": 5_000}
)
# Reading SQL takes longer than reading records.
CPU_S = {"deserializers": 1 / 1_000, "tables": 1 / 300, "hostile": 1 / 300}
# The long test looks for what is new, the short one for what has come back.
SEED = random.SystemRandom().randrange(1 << 32) if LONG else 0


@pytest.fixture
def fuzz(forks: Forks) -> Fuzz:
    return partial(forks.run, "-m", "tests.fuzz")


@pytest.mark.slow
@pytest.mark.parametrize("of", COUNTS)
def test_hostile_bytes_give_a_value_or_the_declared_exception(fuzz: Fuzz, tmp_path: Path, of: str) -> None:
    progress, count = tmp_path / "seed", COUNTS[of]
    cpu = str(round(count * CPU_S[of]))
    done = fuzz("--of", of, "--seed", str(SEED), "--count", str(count), "--cpu", cpu, "--progress", progress)
    if done.returncode < 0:
        (seed,) = struct.unpack("<Q", progress.read_bytes())
        shown = fuzz("--of", of, "--seed", str(seed), "--describe").stdout
        pytest.fail(f"signal {-done.returncode} ended the process\n{shown}{done.stderr[-2_000:]}")
    assert done.returncode == 0, done.stdout + done.stderr[-2_000:]
    assert f"{count} inputs" in done.stdout
    assert "'read'" in done.stdout


@pytest.mark.slow
def test_an_input_can_be_replayed_and_shown(fuzz: Fuzz) -> None:
    shown = fuzz("--seed", "7", "--describe")
    assert "replay: python -m tests.fuzz --seed 7 --count 1" in shown.stdout
    assert "input (hex): " in shown.stdout
    assert shown.stdout == fuzz("--seed", "7", "--describe").stdout
    assert fuzz("--seed", "7").stdout.startswith("seeds 7 to 7\n1 inputs")
    of_tables = fuzz("--of", "tables", "--seed", "7", "--describe")
    assert "replay: python -m tests.fuzz --seed 7 --count 1 --of tables" in of_tables.stdout


HARMFUL = {
    "KeyError": "raise KeyError('undeclared')",
    "MemoryError": "return bytearray(2**30)",
    "contacted": "import socket; socket.socket().connect_ex(('127.0.0.2', 9)); return 1",
    "took ": "x = time.process_time()\n        while time.process_time() - x < 1.1: pass",
    "RecursionError": "return self(value, ctx)",
    "3000 characters": "raise SerializationError('x' * 3_000)",
}
PROGRAM = """
import os, sys
from pathlib import Path
from streamrt.errors import SerializationError
from streamrt.serializers import Deserializer
from tests.fuzz import __main__ as fuzz
from tests.fuzz.targets import Target

harmful, outputs = {harmful!r}, Path({outputs!r})

def play(body):
    names = {{"Deserializer": Deserializer, "SerializationError": SerializationError}}
    exec(CLASS.format(body=body), names)
    return fuzz.main([Target("harmful", names["Harmful"](), [b"abc"])])

CLASS = '''
import sys, time
class Harmful(Deserializer):
    def __call__(self, value, ctx):
        if value == b"abc":
            return value
        {{body}}
'''

for number, body in enumerate(harmful.values()):
    if not os.fork():
        with (outputs / str(number)).open("w") as sys.stdout:
            code = play(body)
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


@pytest.fixture(scope="module")
def harm(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Exit code and output of each harmful deserializer, in processes of their own."""
    outputs = tmp_path_factory.mktemp("harm")
    program = outputs / "harmful.py"
    program.write_text(PROGRAM.format(harmful=HARMFUL, outputs=str(outputs)))
    done = forks.run(program, "--seed", "1")
    assert done.returncode == 0, done.stderr
    codes = [int(line) for line in done.stdout.splitlines()]
    return {
        complaint: (code, (outputs / str(number)).read_text())
        for number, (complaint, code) in enumerate(zip(HARMFUL, codes, strict=True))
    }


@pytest.mark.slow
@pytest.mark.parametrize("complaint", HARMFUL)
def test_harm_is_noticed_and_the_input_is_shown(complaint: str, harm: dict[str, tuple[int, str]]) -> None:
    code, output = harm[complaint]
    assert code == 1, output
    assert complaint in output
    assert "replay: python -m tests.fuzz --seed 1 --count 1" in output
