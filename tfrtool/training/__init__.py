"""From tf.data to a model and its history."""
