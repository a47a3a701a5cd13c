"""Commands that make pages."""
