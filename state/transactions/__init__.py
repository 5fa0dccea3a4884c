"""Transactions of stores, by the operators that use them: of `State`, process functions, windows and joins."""
