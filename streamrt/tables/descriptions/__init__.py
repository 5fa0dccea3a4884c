"""Tables, databases and connections as data."""
