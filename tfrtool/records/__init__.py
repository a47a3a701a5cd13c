"""Bytes: framing, CRCs, compression, shard names and the streaming reader."""
