"""Searching for better values on the validation split."""
