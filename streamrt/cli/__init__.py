"""StreamRT."""
