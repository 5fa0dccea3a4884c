"""Statements of SQL, with their positions."""
