"""Coverage-guided fuzzing of all that reads bytes from others: ``make fuzz``."""
