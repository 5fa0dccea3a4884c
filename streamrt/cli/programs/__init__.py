"""Commands for programs: `init`, `run`, `dev`, `plan`, `reset`, `repartition`, `savepoint`, `state`."""
