"""From image files to labels."""
