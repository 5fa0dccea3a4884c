"""State queries: from any thread to the process that owns the state, and back as values."""
