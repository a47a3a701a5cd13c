"""From records back to files."""
