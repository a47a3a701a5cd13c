"""The outputs of a frozen base."""
