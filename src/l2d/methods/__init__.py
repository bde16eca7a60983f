"""The losses that a router can learn by, and how it decides then."""
