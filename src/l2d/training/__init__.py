"""The steps of a run, from an experiment to its result."""
