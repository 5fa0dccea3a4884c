"""Sources of files, locally and in object stores."""
