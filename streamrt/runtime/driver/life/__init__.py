"""The life of a run: states, pauses, checkpoints, restarts and ends."""
