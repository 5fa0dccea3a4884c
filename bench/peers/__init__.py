"""Other systems that StreamRT is compared with, as programs with the cases of `bench/dataframe_cases.py`."""
