"""Where bytes are, and how they appear."""
