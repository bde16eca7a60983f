"""The methods: the loss that a router learns by, and how it decides."""
