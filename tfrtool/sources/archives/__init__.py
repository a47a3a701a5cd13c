"""Images in archives."""
