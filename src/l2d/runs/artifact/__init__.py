"""The file of a trained router: training writes it, the router reads it."""
