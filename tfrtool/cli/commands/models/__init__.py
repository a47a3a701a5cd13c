"""The commands of models: what needs TensorFlow."""
