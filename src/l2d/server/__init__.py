"""A router as a service: decisions, a gateway for OpenAI clients, and a log of outcomes. Its packages come with l2d[serve]."""
