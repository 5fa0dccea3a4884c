"""The view from outside: statistics, lag, owners, progress and output."""
