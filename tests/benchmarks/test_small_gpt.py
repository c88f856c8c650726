"""The comparison of AdamW and Muon on a small GPT, benchmarks/small_gpt.py."""

import json
import sys
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))


def test_logits_of_a_snapshot_are_those_of_the_model():
    from small_gpt_training import GPT, SIZES, logits_of, snapshot

    size = SIZES["tiny"]
    torch.manual_seed(0)
    model = GPT(size)
    text = torch.randint(256, (2, size.context))
    logits = logits_of(snapshot(model, text))
    with torch.no_grad():
        attention, m = model.blocks[0].attention, size.width // size.heads
        tokens = model.blocks[0].norm(model.embedding(text) + model.position)
        for head in range(size.heads):
            rows = slice(head * m, (head + 1) * m)
            keys, queries = tokens @ attention.key.weight[rows].T, tokens @ attention.query.weight[rows].T
            expected = torch.tril(queries @ keys.mT / m**0.5)
            np.testing.assert_allclose(logits[0, head], expected, atol=1e-5)  # float32


def test_muon_arms_differ_in_keys_and_queries_alone():
    """All singular values of a step are the rate: of each head in one arm, of all heads together in the other."""
    from small_gpt_training import ARMS, GPT, SIZES, loss_of, optimizers_of

    size, rate = SIZES["tiny"], 0.5
    steps = {}
    for name in ("muon-heads", "muon-fused"):
        torch.manual_seed(0)
        model = GPT(size)
        before = {name: weights.detach().clone() for name, weights in model.named_parameters()}
        optimizers = optimizers_of(model, ARMS[name], rate, size.heads)
        for group in (group for one in optimizers for group in one.param_groups):
            group["weight_decay"] = 0.0
        loss_of(model, torch.randint(256, (8, size.context + 1))).backward()
        for one in optimizers:
            one.step()
        steps[name] = {name: (weights - before[name]).detach() for name, weights in model.named_parameters()}
    apart = {name for name, step in steps["muon-heads"].items() if not torch.equal(step, steps["muon-fused"][name])}
    assert apart == {"blocks.0.attention.key.weight", "blocks.0.attention.query.weight"}
    for name in apart:
        heads = torch.linalg.svdvals(steps["muon-heads"][name].unflatten(0, (size.heads, -1)))
        together = torch.linalg.svdvals(steps["muon-fused"][name])
        # float32; the entries of a normed token sum to 0, so one direction of all d has no gradient
        np.testing.assert_allclose(heads, rate, rtol=1e-3)
        np.testing.assert_allclose(together[:-1], rate, rtol=1e-3)


@pytest.mark.parametrize("best", [-3, 0, 2])
def test_the_search_for_a_rate_ends_around_its_minimum(best):
    from small_gpt import HALF_DECADE, best_rate

    tried = []

    def loss_at(rate):
        tried.append(round(np.log(rate / 0.01) / np.log(HALF_DECADE)))
        return abs(tried[-1] - best)

    assert best_rate(0.01, loss_at) == pytest.approx(0.01 * HALF_DECADE**best)
    assert {best - 1, best, best + 1} <= set(tried)
    assert len(tried) == len(set(tried))


def rows_of(tokens, weights, queries):
    """The constraints of what a head selects for (window, place), by hand."""
    rows = []
    for window, q in queries:
        logits = tokens[window, : q + 1] @ weights @ tokens[window, q]
        kept = logits.argmax()
        rows += [
            np.outer(tokens[window, kept] - tokens[window, t], tokens[window, q]) for t in range(q + 1) if t != kept
        ]
    return np.array(rows)


def expected_ratio(norm, weights, rows):
    """Margin ratio of weights (H, d, d) by CVXPY, for a norm of H variables and the constraints of each head."""
    variables = [cp.Variable(w.shape) for w in weights]
    margins = [cp.vec(w, order="C") @ r.reshape(len(r), -1).T >= 1 for w, r in zip(variables, rows, strict=True)]
    best = cp.Problem(cp.Minimize(norm(variables)), margins).solve(solver=cp.CLARABEL)
    margin = min((r * w).sum(axis=(1, 2)).min() for w, r in zip(weights, rows, strict=True))
    return best * margin / norm([cp.Constant(w) for w in weights]).value


ONE_HEAD = {
    "nuclear": lambda heads: cp.normNuc(heads[0]),
    "frobenius": lambda heads: cp.norm(heads[0], "fro"),
    "spectral": lambda heads: cp.sigma_max(heads[0]),
}
TOGETHER = {
    "nuclear": lambda heads: sum(map(cp.normNuc, heads)),
    "spectral": lambda heads: cp.maximum(*map(cp.sigma_max, heads)),
}
"""That of fused heads is tested with the norm."""


def test_measures_of_heads_agree_with_cvxpy():
    from small_gpt_heads import measure, measure_together
    from small_gpt_training import Size

    rng = np.random.default_rng(0)
    num_tokens, d = 8, 4
    tokens = rng.normal(size=(3, num_tokens, d))
    rank_one = np.outer(rng.normal(size=d), rng.normal(size=d))
    weights = np.stack([100.0 * rng.normal(size=(d, d)), 400.0 * rank_one])
    full, low = measure(tokens[None], weights[None], Size(d, 1, 2, num_tokens, 1, 1, 1, queries=18))
    assert low["effective_rank"] == pytest.approx(1.0, abs=1e-9)
    values = np.linalg.svd(weights[0], compute_uv=False)
    assert full["effective_rank"] == pytest.approx(np.prod((values / values.sum()) ** (-values / values.sum())))
    # all 18 queries of the last three quarters are saturated
    queries = [(window, q) for window in range(3) for q in range(2, num_tokens)]
    assert full["saturated"] == 1.0
    rows = rows_of(tokens, weights[0], queries)
    # the tolerance of the measure's solves is 1e-4
    for norm, of in ONE_HEAD.items():
        assert full["ratios"][norm] == pytest.approx(expected_ratio(of, weights[:1], [rows]), rel=2e-4), norm

    soft = 0.01 * weights
    together = measure_together(tokens, soft, num_queries=4)

    def least_probability(query):
        window, q = query
        logits = tokens[window, : q + 1] @ soft @ tokens[window, q]
        return np.min(1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1))

    best = sorted(queries, key=least_probability)[-4:]
    assert together["least_probability"] == pytest.approx(least_probability(best[0]))
    rows = [rows_of(tokens, head, best) for head in soft]
    for norm, of in TOGETHER.items():
        assert together["ratios"][norm] == pytest.approx(expected_ratio(of, soft, rows), rel=2e-4), norm


def test_runs_on_a_text_and_continues(tmp_path, monkeypatch, capsys):
    import small_gpt
    from small_gpt_training import ARMS

    monkeypatch.setattr(small_gpt, "ARMS", {name: ARMS[name] for name in ("adamw", "muon-fused")})
    monkeypatch.setattr(small_gpt, "SEEDS", (0,))
    monkeypatch.setattr(small_gpt, "best_rate", lambda first, loss_at: first)
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text("the cat sat on the mat, and the dog sat on the log. " * 60)
    call = ["small_gpt.py", "--text", text, "--out", out, "--size", "tiny"]
    monkeypatch.setattr(sys, "argv", [str(part) for part in call])
    small_gpt.main()
    first = capsys.readouterr().out
    small_gpt.main()
    again = capsys.readouterr().out
    # the second call trains nothing and finds the same table
    assert "seed0: loss" in first
    assert again == first[first.index("| ") :]
    records = json.loads((out / "tiny" / "adamw-seed0.json").read_text())["records"]
    assert records[-1]["validation_loss"] < records[0]["validation_loss"]
    assert (out / "tiny" / "small-gpt.png").stat().st_size > 10_000
