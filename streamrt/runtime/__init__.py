"""Tasks and what runs them. Modules in this folder are what driver and tasks share: what they are told, and report."""
