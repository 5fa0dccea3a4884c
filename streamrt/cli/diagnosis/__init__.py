"""`streamrt doctor` and its findings."""
