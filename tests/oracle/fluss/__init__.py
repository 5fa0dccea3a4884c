"""Apache Fluss as an oracle for log tables: the same programs run on a Fluss cluster and on StreamRT's tables.

`python -m tests.oracle.fluss` needs an environment with pyfluss, which `make oracle-fluss` makes; it starts a cluster of one
coordinator and one tablet server. Cases with Fluss's answers are in `tests/oracle/fluss/cases`, and
`tests/unit/test_oracle_fluss.py` replays them on tables in memory, without Fluss.

A case is a dict that JSON can hold, of one of these kinds:

* `log`: a table with one bucket (partition), written, scanned and followed;
* `keyed`: a table with three buckets, whose rows are placed by a key;
* `maintained`: a table with rules for merging rows, written in parts and in whole rows; each write answers its row;
* `types`: a table with one column, and values of all sorts for it;
* `admin`: databases and tables are created, looked at and dropped.

Its `steps` are lists: the word of the step, then its arguments; `tests.oracle.fluss.reference` has one method for each word.
The answers of a side are a list with the answer to each step, or `["error", name]`. Values are encoded by
`tests.oracle.fluss.values`.
"""
