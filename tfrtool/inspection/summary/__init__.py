"""What one shard holds."""
