"""Run folders: the state of a run, sweeps, loggers."""
