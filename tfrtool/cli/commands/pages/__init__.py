"""Commands that write or serve HTML pages."""
