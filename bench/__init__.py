"""Benchmarks that anyone can run: each module is a program."""
