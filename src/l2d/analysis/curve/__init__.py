"""Error against price."""
