"""Commands for records of topics: `produce`, `consume`, `schemas`, `dlq`."""
