"""Commands that print records."""
