"""Error against price, from runs that differ in cost.scale: python -m l2d.curve runs."""
