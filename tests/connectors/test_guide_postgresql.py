"""The guide to PostgreSQL: its statements, its program and its test, against a real server."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.postgres import postgres

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "write-to-postgresql-exactly-once.md"


def test_the_guide_writes_each_order_once(tmp_path: Path) -> None:
    page = PAGE.read_text()
    [statements] = re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    program, test = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "orders_to_postgresql.py").write_text(program)
    (tmp_path / "test_orders.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"]
    with postgres() as server:
        server.execute(*statements.split(";\n"))
        names = {"host": "PGHOST", "port": "PGPORT", "dbname": "PGDATABASE", "user": "PGUSER", "password": "PGPASSWORD"}
        environment = {**os.environ, "STREAMRT_BROKER_ADDRESS": "localhost:9092", "PYTHONPATH": str(ROOT)}
        environment |= {names[name]: str(value) for name, value in server.settings.items()}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
