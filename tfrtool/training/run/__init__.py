"""One run of training, from its plan to what it leaves."""
