"""Tables and plots of finished runs, from their folders alone: python -m l2d.report runs."""
