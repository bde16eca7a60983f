"""Two-stage learning to defer under expert imbalance: train a router over fixed experts."""
