"""SQL: views that are kept up to date, and queries of present rows (`docs/decisions/0065-sql.md`)."""
