"""Tables: named topics with a schema, which any process can write, scan and follow without an application."""
