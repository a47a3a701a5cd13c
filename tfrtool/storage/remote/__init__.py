"""Stores behind URLs: what speaks with them, and their objects as files."""
