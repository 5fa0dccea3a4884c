"""The start of an application: its definition, the layout of its group, start offsets, and checks."""
