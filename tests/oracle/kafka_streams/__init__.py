"""Kafka Streams as an oracle for tables in applications: the same plans run in its TopologyTestDriver and in StreamRT's.

`python -m tests.oracle.kafka_streams`, or `make oracle-kafka-streams`, needs a JDK; the jars come from Maven. Cases with the
answers of Kafka Streams are in `tests/oracle/kafka_streams/cases`, and `tests/unit/test_oracle_kafka_streams.py` replays them
without Java.

A case is a dict that JSON can hold, of one of the kinds in `generate.KINDS`. Its `plan` is nested lists, with the word of an
operator first:

* `["table", topic]`, `["stream", topic]`: the rows or the records of a topic; `["versioned", topic]`: a table with history;
* `["filter", table, column, least]`: rows whose column is a number that is not less;
* `["map", table, column, addend, name]`: rows with one more column, a sum;
* `["join", left, right, how]`: by key, how is "inner", "left", "right" or "outer";
* `["foreign", left, right, column, how]`: the column of the left side is the key of the right side; "inner" or "left";
* `["group", table, column, aggregates]`: the column becomes the key; aggregates are lists of name, function and column;
* `["aggregate", stream, column or null, aggregates]`: the same of records, by their key if there is no column;
* `["reduce", stream, function, column, name]`: by key; "sum", "min", "max" or "last";
* `["lookup", stream, table, how]`: each record with the row of its key; "inner" or "left".

Its `steps` are `[topic, key, row or null, timestamp]`: records in the order in which they are put in. The answer of a side is
a list with the outputs of each step, `[key, row or null, timestamp]`.
"""
