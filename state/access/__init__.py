"""State as functions use it: `State` with its handles, and broadcast state. Changes go to a transaction."""
