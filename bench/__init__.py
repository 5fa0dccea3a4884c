"""Benchmarks: each module is a program."""
