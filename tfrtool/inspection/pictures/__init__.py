"""From records to pictures."""
