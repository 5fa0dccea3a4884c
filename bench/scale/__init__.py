"""The cost of scale, one file for each group of cases: `python -m bench.scale`."""
