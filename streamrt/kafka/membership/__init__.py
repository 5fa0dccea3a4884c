"""Membership in consumer groups, and leases among processes."""
