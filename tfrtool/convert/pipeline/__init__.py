"""From sources to published files: what all jobs on records have in common."""
