"""State of stream processors: the package that stores will live in."""
