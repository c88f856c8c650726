"""Comparison of two inspections, on a circuit written by hand and on a copy without its second layer's queries."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")

import torch
from known_circuit import induction_circuit, repeated

import attsvm.torch


def inspected(model, tokens, **options):
    return attsvm.inspect.inspect(model, {"input_ids": tokens}, **options)


def test_only_the_head_that_was_changed_differs():
    tokens, changed = repeated(3, seed=1), induction_circuit()
    with torch.no_grad():
        changed.layers[1].qkv.weight[24:48].mul_(-1)  # queries of head 1.1
    heads = {"heads": [(0, 1), (1, 1)], "gap": 0.1}
    before, after = inspected(induction_circuit(), tokens, **heads), inspected(changed, tokens, **heads)
    comparison = attsvm.inspect.compare(before, after)
    first, second = comparison.heads
    assert (first.layer, first.head, second.layer, second.head) == (1, 1, 0, 1)
    selections = [one.selected[1] for one in (before, after)]
    assert first.changed == np.mean(selections[0] != selections[1]) > 0.5
    for (i, q), one, other in zip(first.queries, first.before, first.after, strict=True):
        assert (one, other) == (selections[0][i, q], selections[1][i, q])
    assert second.changed == 0
    assert not second.margin_moved
    assert second.margin[0] == pytest.approx(second.margin[1])
    assert second.numbers["previous_share"][0] == second.numbers["previous_share"][1] > 0.9
    assert str(comparison).startswith(f"head 1.1: {first.changed:.1%} of the selections changed; margin ratio")
    moved = first._replace(margin=((0.1, 0.2), (0.3, 0.4)))
    assert moved.margin_moved
    assert not moved._replace(margin=None).margin_moved


def test_inspections_that_do_not_fit_are_refused():
    model, tokens = induction_circuit(), repeated(3, seed=1)
    one = inspected(model, tokens, margins=False, heads=[(0, 0)])
    with pytest.raises(attsvm.ProblemError, match="with the same queries as the first"):
        attsvm.inspect.compare(one, inspected(model, tokens[:2], margins=False))
    with pytest.raises(attsvm.ProblemError, match="some of the same attention heads"):
        attsvm.inspect.compare(one, inspected(model, tokens, margins=False, heads=[(1, 1)]))
