"""Making a router: from a checked experiment to splits, batches, method and network."""
