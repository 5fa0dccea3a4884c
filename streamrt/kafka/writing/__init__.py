"""Producers that know the outcome of each record, and transactions."""
