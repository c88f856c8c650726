"""Norms of all attention heads together: their pieces, and the joint Att-SVM against the heads by themselves."""

from dataclasses import dataclass

import numpy as np
import pytest

import attsvm
from attsvm import ProblemError
from attsvm.norms import (
    Lp,
    MaxOfHeads,
    Norm,
    Nuclear,
    OnRows,
    Scaled,
    Spectral,
    SumOfHeads,
    check,
    parse_norm,
)
from attsvm.norms.factors import FusedHeads
from oracles.results import assert_survives_a_file


def _problem(seed=0):
    generator = np.random.default_rng(seed)
    tokens, queries = generator.standard_normal((2, 3, 4, 6)), generator.standard_normal((2, 3, 6))
    return attsvm.Problem(tokens, queries=queries, num_heads=3), generator.integers(0, 4, (2, 3, 3))


def test_the_pieces_agree():
    for norm in (SumOfHeads(Nuclear()), MaxOfHeads(Spectral()), MaxOfHeads(Lp(1.5), num_heads=2)):
        assert check(norm).missing == ("steepest",)
        assert parse_norm(norm.name) == type(norm)(norm.of)
    for norm in (SumOfHeads(Nuclear(), num_groups=2), MaxOfHeads(Lp(1.5), num_heads=4, num_groups=1)):
        assert check(norm).missing == ("steepest",)
        assert parse_norm(norm.name) == type(norm)(norm.of, num_groups=norm.num_groups)


@dataclass(frozen=True)
class Outside(Norm):
    """A norm of another package that is made of another one."""

    of: Norm
    name = "outside"

    def value(self, x, axes=2):
        return self.of.value(x)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SumOfHeads(SumOfHeads(Nuclear())),
        lambda: MaxOfHeads(Scaled(FusedHeads(), 2.0)),
        lambda: OnRows(FusedHeads()),
        lambda: parse_norm(Outside(FusedHeads())),
        *(
            lambda name=name: parse_norm(name)
            for name in (
                "2*fused_heads",
                "max over heads of sum over heads of l1",
            )
        ),
    ],
)
def test_they_are_no_parts_of_other_norms(make):
    with pytest.raises(ProblemError, match=r"norm: expected a norm of one matrix as a part of \w+, got .* all heads"):
        make()


def test_the_proximal_map_of_the_largest_is_exact_at_any_scale():
    x = np.random.default_rng(0).standard_normal((3, 4, 2))
    whole = x.reshape(12, 2)
    for scale in (1.0, 1e-12, 1e-200):
        # the largest entry of all heads is that of one matrix, whose proximal map has another method
        w = MaxOfHeads(Lp(np.inf)).prox(scale * x, 0.7 * scale)
        np.testing.assert_allclose(w.reshape(12, 2) / scale, Lp(np.inf).prox(whole, 0.7), rtol=0, atol=1e-14)
        assert not MaxOfHeads(Spectral()).prox(scale * x, 100 * scale).any()


@pytest.mark.parametrize(("norm", "reduce"), [(SumOfHeads(Nuclear()), np.sum), (MaxOfHeads(Spectral()), np.max)])
def test_the_joint_solution_has_those_of_the_heads(norm, reduce, tmp_path):
    problem, selected = _problem()
    joint, each = attsvm.solve_svm(problem, selected, norm), attsvm.solve_svm(problem, selected, norm.of)
    assert (joint.status == "optimal").all()
    np.testing.assert_allclose(joint.value, reduce(each.value, axis=-1), rtol=1e-9)
    np.testing.assert_allclose(joint.direction, each.direction, rtol=0, atol=1e-6 * np.abs(each.direction).max())
    # the bound from below, without code of the library
    singular = np.linalg.svd(_pulls(problem, selected, joint.dual), compute_uv=False)
    dual_norm = singular[..., 0].max(-1) if reduce is np.sum else singular.sum((-2, -1))
    np.testing.assert_allclose(joint.dual.sum((1, 2, 3)) / dual_norm, joint.value, rtol=1e-8)
    np.testing.assert_allclose(attsvm.margin_ratio(problem, joint.direction, selected, norm), 1, rtol=1e-8)
    np.testing.assert_allclose(attsvm.margin(problem, 3 * joint.direction, selected, norm), 1 / joint.value, rtol=1e-8)
    loaded = assert_survives_a_file(joint[0], tmp_path)
    assert loaded.norm == norm
    assert loaded.direction.shape == (3, 6, 6)


@pytest.mark.parametrize("norm", [SumOfHeads(Nuclear(), num_groups=2), MaxOfHeads(Spectral(), num_groups=1)])
def test_groups_of_heads_are_one_problem_with_queries_in_blocks(norm):
    generator = np.random.default_rng(3)
    tokens, queries = generator.standard_normal((3, 4, 5)), generator.standard_normal((3, 5))
    problem, selected = attsvm.Problem(tokens, queries=queries, num_heads=4), generator.integers(0, 4, (4, 3))
    joint = attsvm.solve_svm(problem, selected, norm)
    assert joint.status == "optimal"
    values = []
    for heads in np.split(np.arange(4), norm.num_groups):
        blocks = np.zeros((3, len(heads), len(heads), 5))
        blocks[:, range(len(heads)), range(len(heads))] = queries[:, None]
        beside = attsvm.Problem(tokens, queries=blocks.reshape(3, len(heads), -1))
        alone = attsvm.solve_svm(beside, selected[heads].T, norm.of)
        values.append(alone.value)
        np.testing.assert_allclose(np.concatenate(list(joint.direction[heads]), axis=1), alone.direction, atol=1e-6)
    np.testing.assert_allclose(joint.value, sum(values), rtol=1e-9)
    again = attsvm.solve_svm(problem, selected, norm, warm_start=joint, method="douglas-rachford", tol=1e-6)
    np.testing.assert_allclose(again.value, joint.value, rtol=2e-6)


def _pulls(problem, selected, dual):
    """A*(λ) of each head."""
    tokens, queries = problem.tokens, problem.queries
    kept = np.take_along_axis(tokens, selected[..., None, None], axis=-2)
    return np.einsum("bhnt,bhntd,bhne->bhde", dual, kept - tokens, queries)


def test_what_does_not_fit_is_refused_and_an_impossible_head_is_found():
    problem, selected = _problem()
    norm, of_one_head = SumOfHeads(Nuclear()), attsvm.datasets.random_problem(3, 4, 5, seed=0)
    for joint in (norm, "sum over heads of 0.5*frobenius"):
        with pytest.raises(ProblemError, match="expected a problem with num_heads"):
            attsvm.solve_svm(of_one_head, [0, 0, 0], joint)
    with pytest.raises(ProblemError, match="expected a norm of one matrix"):
        attsvm.theory.kkt_ratio(of_one_head, {"K": np.eye(5), "Q": np.eye(5)}, [0, 0, 0], "fused_heads")
    with pytest.raises(ProblemError, match=r"^norm: fused_heads: expected weights of shape .* got \(3,\)$"):
        FusedHeads().value(np.ones(3))
    with pytest.raises(ProblemError, match=r"weights: expected shape \(..., 3, 6, 6\)"):
        attsvm.margin(problem, np.ones((6, 6)), selected, norm)
    tokens = problem.tokens[0, 0].copy()
    tokens[0, 0] = tokens[0, 1:].mean(axis=0)
    impossible = attsvm.Problem(tokens, queries=problem.queries[0, 0], num_heads=2)
    found = attsvm.solve_svm(impossible, [[1, 0, 0], [0, 0, 0]], norm)
    assert found.status == "infeasible"
    assert not found.dual[0].any()
    assert found.direction.shape == (2, 6, 6)
    prompts = attsvm.Problem(np.eye(4)[None], num_heads=2)
    both = attsvm.solve_svm(prompts, [[0], [1]], SumOfHeads(Lp(2.0)))
    single = attsvm.solve_svm(prompts, [[0], [1]])
    np.testing.assert_allclose(both.direction, single.direction, rtol=1e-12)
    assert both.value == pytest.approx(single.value.sum(), rel=1e-12)
