"""Programs of process functions, windows and asynchronous calls with known outputs, and after which input these come.

`tests/unit/test_known_programs.py` plays them record by record in the test driver. `tests/spark/test_known_programs.py`
has those that need no hand at the clock in bounded runs on Kafka and Spark, all in one application.
"""

from tests.known_programs import calls, functions, windows
from tests.known_programs.program import ALL, Advance, Clock, In, Out, Parts, Program, Together

__all__ = ["ALL", "Advance", "Clock", "In", "Out", "Parts", "Program", "Together", "calls", "functions", "windows"]
