"""Tables in other systems."""
