"""How a run goes from an experiment to its result."""
