"""Records as rows: in batches, one by one, and under SQL."""
