"""Everything that reads finished runs."""
