"""Questions and requests to the brokers: topics, offsets, groups."""
