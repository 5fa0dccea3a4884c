"""Savepoints: what a stopped group has committed, copied into one topic, and made the state of a group again."""
