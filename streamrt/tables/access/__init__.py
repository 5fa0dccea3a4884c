"""How tables reach their topics: links to Kafka or memory, positions, and topics that were created again."""
