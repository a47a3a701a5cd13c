"""The Arrow bridge: payloads as record batches, and back."""
