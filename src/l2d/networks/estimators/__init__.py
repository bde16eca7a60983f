"""Estimates of how right each expert will be that are computed from the training rows at once, not learned step by step."""
