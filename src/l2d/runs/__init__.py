"""Run folders, and many of them: where a run stands, sweeps, loggers."""
