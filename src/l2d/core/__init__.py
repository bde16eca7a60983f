"""The paper's equations: pure functions on tensors, and the typed result of a run."""
