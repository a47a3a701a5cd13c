"""Commands for models, which need TensorFlow."""
