"""`streamrt table` and `streamrt catalog`."""
