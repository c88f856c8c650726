"""The constraints of several attention heads as those of one problem, with their weights below or beside each other."""

from dataclasses import replace

import numpy as np

from attsvm.svm.constraints.constraints import Constraints


def stacked_heads(constraints: Constraints) -> Constraints:
    """The constraints of H heads, along the last batch axis, as those of weights (H d_k, d_q) below each other.

    The queries of the heads are queries of the same problem, and the keys of each head have the entries of its own
    block; the others are 0.
    """
    references, equality = constraints.references, constraints.equality

    def each(array: np.ndarray) -> np.ndarray:
        return np.broadcast_to(array, constraints.batch_shape + array.shape[-3:])

    return Constraints(
        _in_blocks(each(constraints.keys)),
        _joined(each(constraints.queries)),
        None if references is None else _in_blocks(each(references)),
        _joined(constraints.inequality),
        None if equality is None else _joined(equality),
        _joined(constraints.right),
        None if constraints.center_length is None else np.linalg.norm(constraints.center_length, axis=-1),
    )


def split_heads(constraints: Constraints, num_heads: int) -> Constraints:
    """The constraints of each head along a last batch axis, from those that :func:`stacked_heads` returns."""

    def own_block(array: np.ndarray) -> np.ndarray:
        # of (H, n, k, H, d) the blocks in which both heads are equal
        blocks = _apart(array, num_heads)
        blocks = blocks.reshape(*blocks.shape[:-1], num_heads, -1)
        return np.stack([blocks[..., h, :, :, h, :] for h in range(num_heads)], axis=-4)

    references, equality, length = constraints.references, constraints.equality, constraints.center_length
    return replace(
        constraints,
        keys=own_block(constraints.keys),
        queries=_apart(constraints.queries, num_heads),
        references=None if references is None else own_block(references),
        inequality=_apart(constraints.inequality, num_heads),
        equality=None if equality is None else _apart(equality, num_heads),
        right=_apart(constraints.right, num_heads),
        center_length=None if length is None else np.repeat(length[..., None], num_heads, axis=-1),
    )


def beside_heads(constraints: Constraints, num_groups: int) -> Constraints:
    """The constraints of g groups, from those of H heads along the last batch axis.

    The weights (d_k, G d_q) of a group are those of G = H/g consecutive heads, side by side. The keys of the heads are
    keys of the same problem, and the queries of each head have the entries of its own block.
    """
    batch = constraints.batch_shape

    def grouped(array: np.ndarray) -> np.ndarray:
        spread = np.broadcast_to(array, batch + array.shape[-3:])
        return spread.reshape(*batch[:-1], num_groups, -1, *array.shape[-3:])

    references, equality, length = constraints.references, constraints.equality, constraints.center_length
    return Constraints(
        _joined(grouped(constraints.keys)),
        _in_blocks(grouped(constraints.queries)),
        None if references is None else _joined(grouped(references)),
        _joined(grouped(constraints.inequality)),
        None if equality is None else _joined(grouped(equality)),
        _joined(grouped(constraints.right)),
        None if length is None else np.linalg.norm(length.reshape(*batch[:-1], num_groups, -1), axis=-1),
    )


def _joined(array: np.ndarray) -> np.ndarray:
    """(*batch, H, n, k, l) as (*batch, H n, k, l)."""
    return array.reshape(*array.shape[:-4], -1, *array.shape[-2:])


def _apart(array: np.ndarray, num_heads: int) -> np.ndarray:
    """(*batch, H n, k, l) as (*batch, H, n, k, l)."""
    return array.reshape(*array.shape[:-3], num_heads, -1, *array.shape[-2:])


def _in_blocks(array: np.ndarray) -> np.ndarray:
    """(*batch, H, n, k, d) as (*batch, H n, k, H d), with zeros outside of the block of each head."""
    num_heads = array.shape[-4]
    blocks = np.zeros((*array.shape[:-1], num_heads, array.shape[-1]))
    # keys or queries of head h meet only the block h of the weights
    for h in range(num_heads):
        blocks[..., h, :, :, h, :] = array[..., h, :, :, :]
    return _joined(blocks.reshape(*array.shape[:-1], -1))
