"""The worked examples of the papers: equal to the published arrays, and drawn from their seeds."""

import numpy as np
import pytest

import attsvm
from attsvm.papers import examples as papers


def test_worked_examples_are_those_of_the_references(reference):
    published = reference("prompt_attention.npz")
    examples = {
        "single_global": papers.one_sequence(),
        "single_local": papers.one_sequence(local=True),
        "multi": papers.several_sequences(),
        "joint_all_support": papers.joint_prompt(),
        "joint_relaxed": papers.joint_prompt(slack=True),
        "loss_linear_C10": papers.unequal_scores(10),
    }
    for name, problem in examples.items():
        assert np.array_equal(problem.tokens.astype(np.float32), published[f"{name}_X"]), name
    joint, mirror = papers.joint_mirror(), reference("mirror_descent.npz")
    assert np.allclose(joint.tokens, mirror["joint_X"], atol=1e-7)
    assert np.allclose(joint.queries, mirror["joint_Z"], atol=1e-7)


@pytest.mark.parametrize(("num_tokens", "seed", "spread"), [(3, 1, 0.3), (5, 3, 0.5)])
def test_the_examples_in_the_plane_come_from_their_seeds(num_tokens, seed, spread):
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(seed)
    head, tokens, queries = (torch.randn(shape, generator=generator) for shape in (2, (2, num_tokens, 2), (2, 2)))
    tokens = spread * tokens.double().numpy()
    if num_tokens == 3:
        tokens[0, :, 0] -= 1
        tokens[1, :, 0] += 1
    else:
        tokens[:, 0] = [[1, 0.5], [1, -0.5]]
        tokens[:, 1:, 0] -= 1
    problem = papers.in_the_plane(num_tokens)
    assert np.allclose(problem.tokens, tokens, rtol=0, atol=1e-6)
    for got, drawn in ((problem.head, head), (problem.queries, queries)):
        drawn = drawn.double().numpy()
        assert np.allclose(got, drawn / np.linalg.norm(drawn, axis=-1, keepdims=True), rtol=0, atol=1e-6)
    with pytest.raises(attsvm.ProblemError, match="num_tokens: expected 3 or 5, got 4"):
        papers.in_the_plane(4)
