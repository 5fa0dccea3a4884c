"""Local copies of tables with a primary key, which follow their topics and answer lookups by key."""
