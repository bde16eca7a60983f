"""The networks that a router can be."""
