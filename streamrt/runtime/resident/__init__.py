"""The resident loop: its feed, its membership, its turns and its messages."""
