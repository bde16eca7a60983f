"""Language models as experts."""
