"""Text as numbers or tokens."""
