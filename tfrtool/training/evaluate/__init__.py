"""From a saved model and a dataset to what it gets wrong."""
