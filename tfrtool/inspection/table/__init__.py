"""A row for each record: its place, its values, and what its image looks like."""
