"""From shards to a summary. TensorFlow and numpy stay out of here."""
