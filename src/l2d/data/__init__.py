"""Datasets, and how their rows become batches."""
