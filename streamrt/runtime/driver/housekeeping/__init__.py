"""The state directory of an application, and resets."""
