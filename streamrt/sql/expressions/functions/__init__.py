"""The scalar functions of SQL, by kind."""
