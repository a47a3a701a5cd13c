"""Statistics of the values of records."""
