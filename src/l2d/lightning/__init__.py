"""Training of routers and experts: the step, checkpoints, timing."""
