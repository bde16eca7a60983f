"""A finished run, asked about new queries."""
