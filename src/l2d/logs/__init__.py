"""All that is a log of outcomes: where it is kept, its rows, and what they say of a router."""
