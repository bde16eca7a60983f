"""Fixed experts, whose answers are computed once and kept."""
