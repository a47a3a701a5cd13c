"""What is too much for memory, in a scratch folder."""
