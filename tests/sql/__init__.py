"""What shows that a continuous view has the rows of the batch query: `python -m tests.sql`.

Suites of queries (TPC-H, Nexmark, sqllogictest) and random ones run as views of an application, over rows that come in
chunks, with updates and deletions. After each chunk, the rows of a view are compared with those of the same text in DuckDB.
"""
