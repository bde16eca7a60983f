"""Divides the rows of a table again, so that every row is a test row once. Rows are numbered as in `pooled`: first the training
rows, then the test rows."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from l2d.data.arrays import Arrays, divided
from l2d.data.splits import cross_validation_fold


def pooled(arrays: Arrays) -> Arrays:
    """All rows as training rows, none as test rows."""
    panel, ids, train_ids = arrays.panel, arrays.ids, arrays.train_ids
    groups, categories, both = arrays.groups, arrays.categories, arrays.train_categories
    if panel is not None:
        answers = panel.train.followed_by(panel.test)
        panel = replace(panel, train=answers, test=answers[:0])
    return Arrays(
        torch.cat([arrays.train_inputs, arrays.test_inputs]),
        torch.cat([arrays.train_labels, arrays.test_labels]),
        arrays.test_inputs[:0],
        arrays.test_labels[:0],
        arrays.num_classes,
        panel=panel,
        groups=None if groups is None or arrays.test_groups is None else torch.cat([groups, arrays.test_groups]),
        categories=None if categories is None else (),
        train_categories=None if both is None or categories is None else both + categories,
        ids=None if ids is None else ids[:0],
        train_ids=None if ids is None or train_ids is None else np.concatenate([train_ids, ids]),
        texts=None if arrays.texts is None else (arrays.texts[0] + arrays.texts[1], []),
        seen=arrays.seen,
    )


def with_test_fold(whole: Arrays, fold: str, seed: int) -> tuple[Arrays, Tensor]:
    """The rows of `pooled`, one of the folds held out as test rows; and which rows these are. fold: "2/5" is the second of five."""
    train, test = cross_validation_fold(whole, fold, seed)
    return divided(replace(whole, train_inputs=whole.train_inputs.clone()), train, test), test
