"""Plans as operators of dataframes and tables."""
