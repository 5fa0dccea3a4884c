"""Sinks of files, locally and in object stores."""
