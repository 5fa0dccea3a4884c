"""The work of a task: operators at work, state and its restore, commits."""
