"""Asynchronous calls: the operator, its batches, and its retries."""
