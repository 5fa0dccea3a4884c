"""The catalogue: objects by name, where they are kept, and how they change."""
