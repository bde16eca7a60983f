"""How anything here learns, a router or an expert: the step, checkpoints, timing."""
