"""Other systems that StreamRT is compared with, as programs with the cases of `bench/cases.py`."""
