"""Logs and tables larger than memory: sums over blocks of rows, computed on Ray Data, of which routers are fitted and judged."""
