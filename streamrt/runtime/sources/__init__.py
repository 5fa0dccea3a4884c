"""The processes of sources."""
