"""Models, and how they are saved."""
