"""What runs in a task: operators at work, state and its restore, commits."""
