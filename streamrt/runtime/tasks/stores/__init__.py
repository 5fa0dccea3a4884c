"""The stores of a task: they are found, opened, restored from changelogs and protected from other owners."""
