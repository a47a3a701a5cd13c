"""Looking at all images before anything is written."""
