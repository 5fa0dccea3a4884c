"""The chain of operators of a task: a record passes through it, with its outputs, sinks, calls and errors."""
