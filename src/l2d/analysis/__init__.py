"""All that reads finished runs."""
