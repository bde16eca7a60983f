"""The paper's bounds and consistency results, in numbers."""
