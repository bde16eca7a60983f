"""Public benchmarks of routers as the columns of a table."""
