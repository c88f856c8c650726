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


def test_measures_of_a_saturated_head_agree_with_cvxpy():
    from small_gpt_heads import measure
    from small_gpt_training import Size

    rng = np.random.default_rng(0)
    num_tokens, d = 8, 4
    tokens = rng.normal(size=(1, 3, num_tokens, d))
    rank_one = 400.0 * np.outer(rng.normal(size=d), rng.normal(size=d))
    weights = np.stack([100.0 * rng.normal(size=(d, d)), rank_one])[None]
    full, low = measure(tokens, weights, Size(d, 1, 2, num_tokens, 1, 1, 1, queries=18))
    assert low["effective_rank"] == pytest.approx(1.0, abs=1e-9)
    values = np.linalg.svd(weights[0, 0], compute_uv=False)
    assert full["effective_rank"] == pytest.approx(np.prod((values / values.sum()) ** (-values / values.sum())))
    # the queries of the last three quarters, all saturated
    assert full["saturated"] == 1.0
    rows = []
    for window in tokens[0]:
        for q in range(2, num_tokens):
            logits = window[: q + 1] @ weights[0, 0] @ window[q]
            rows += [
                np.outer(window[logits.argmax()] - window[t], window[q]) for t in range(q + 1) if t != logits.argmax()
            ]
    rows = np.array(rows)
    margin = (rows * weights[0, 0]).sum(axis=(1, 2)).min()
    for norm, of in (("nuclear", cp.normNuc), ("frobenius", lambda w: cp.norm(w, "fro")), ("spectral", cp.sigma_max)):
        variable = cp.Variable((d, d))
        margins = rows.reshape(len(rows), -1) @ cp.vec(variable, order="C")
        best = cp.Problem(cp.Minimize(of(variable)), [margins >= 1]).solve(solver=cp.CLARABEL)
        expected = best * margin / of(weights[0, 0]).value
        # the tolerance of the measure's solves is 1e-4
        assert full["ratios"][norm] == pytest.approx(expected, rel=2e-4), norm


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
    records = json.loads((out / "tiny" / "measures.json").read_text())["adamw"][0]
    assert records[-1]["validation_loss"] < records[0]["validation_loss"]
    assert (out / "tiny" / "small-gpt.png").stat().st_size > 10_000
