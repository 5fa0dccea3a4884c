"""Plans of queries: names resolved, types known, subqueries taken apart."""
