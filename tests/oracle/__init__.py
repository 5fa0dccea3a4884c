"""PyFlink's own operators as an oracle: the same random programs run on them and on StreamRT, and must agree.

`python -m tests.oracle` needs an environment with PyFlink, which `make oracle` makes. A few hundred of the cases, with what
PyFlink put out, are in `tests/oracle/recorded`; `tests/unit/test_oracle.py` replays them without PyFlink.

A case is a dict that JSON can hold. Its `steps` are:

* `["e", key, timestamp, value]`: an element. The watermark that follows it is the highest timestamp so far, minus the
  `delay` of the case, minus 1.
* `["c", timestamp]`: the same watermark as after an element with this timestamp, but no element.
* `["p", time]`: processing time passes to this time, in milliseconds.

What a side puts out is a list with the results of each step. The order within a step counts.
"""
