"""What commands show to people."""
