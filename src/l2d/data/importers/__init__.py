"""Recorded outcomes of language models as the columns of a table."""
