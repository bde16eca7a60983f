"""l2d from Python: `l2d.fit`, the scikit-learn estimator, the torchmetrics metric. The training is that of `l2d train`."""
