"""Writes tables: rows, transactions and what became of them."""
