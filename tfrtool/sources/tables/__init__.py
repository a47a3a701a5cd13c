"""Images named by tables."""
