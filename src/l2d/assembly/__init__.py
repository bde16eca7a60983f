"""How a router is made: from a checked experiment to splits, batches, method and network."""
