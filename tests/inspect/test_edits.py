"""Smallest edits of heads: the rows are gradients of the running model's attention, the optimum is CVXPY's."""

import copy

import cvxpy as cp
import numpy as np
import pytest
import torch

import attsvm.torch
from attsvm.errors import ProblemError
from oracles.attention_only import AttentionOnly

transformers = pytest.importorskip("transformers", reason="transformers (extra `inspect`) is not installed")

from small_models import NEOX, SMALL, small, spread_out  # noqa: E402

LAYER, HEAD = 1, 2


def bert():
    return transformers.BertModel(transformers.BertConfig(vocab_size=50, **SMALL), add_pooling_layer=False)


def gpt2():
    return small("GPT2", n_embd=24, n_head=4, n_layer=2)


def llama(biased=False):
    return small("Llama", num_key_value_heads=2, attention_bias=biased, **SMALL)


def weight(model, change):
    """The parameters that change, and which of their entries belong to the head, by the layouts of the library."""
    rows, group = slice(6 * HEAD, 6 * HEAD + 6), slice(6 * (HEAD // 2), 6 * (HEAD // 2) + 6)
    if isinstance(model, transformers.BertModel):
        attention = model.encoder.layer[LAYER].attention.self
        part = attention.key if change == "keys" else attention.query
        return [(part.weight, (rows,))] + [(part.bias, (rows,))] * (change == "queries")
    if isinstance(model, transformers.GPT2Model):
        part, first = model.h[LAYER].attn.c_attn, 24 * (change == "keys")
        columns = slice(first + 6 * HEAD, first + 6 * HEAD + 6)
        return [(part.weight, (slice(None), columns))] + [(part.bias, (columns,))] * (change == "queries")
    attention = model.layers[LAYER].self_attn
    part, rows = (attention.k_proj, group) if change == "keys" else (attention.q_proj, rows)
    return [(part.weight, (rows,))] + [(part.bias, (rows,))] * (change == "queries" and part.bias is not None)


def prepared(make):
    """A model in double precision whose attention is far from even."""
    model = spread_out(make())
    model.set_attn_implementation("eager")
    return model.double()


def words(count=6, seed=1):
    """Sequences of 7 tokens that begin with token 1; the second is padded."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.stack([3 + torch.randperm(47, generator=generator)[:7] for _ in range(count)])
    ids[:, 0] = 1
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    return {"input_ids": ids, "attention_mask": mask}


TARGETS = [(0, 6, 2), (1, 4, 1), (2, 5, 3), (3, 6, 0), (4, 6, 4)]


def inspection(model, text=None):
    return attsvm.inspect.inspect(model, text or words(), margins=False)


def attention(model, text=None):
    return model(**(text or words()), output_attentions=True).attentions[LAYER][:, HEAD]


def leads(model, targets, allowed):
    """log p_α − log p_t of every target over the other tokens that its query sees: differences of logits."""
    seen, found = attention(model), []
    for i, q, a in targets:
        found += [seen[i, q, a].log() - seen[i, q, t].log() for t in range(7) if t != a and allowed[i, q, t]]
    return torch.stack(found)


def rows_of_model(model, targets, change):
    """Gradients of the leads, shape (m, entries), what is required of the leads, and the leads."""
    allowed = (attention(model) > 0).numpy()
    present, gradients = leads(model, targets, allowed), []
    parameters = weight(model, change)
    for lead in present:
        every = torch.autograd.grad(lead, [one for one, _ in parameters], retain_graph=True)
        # numbered as the weights of an edit: an axis of inputs, which the bias ends, and one of the head
        parts = [g[at].numpy() for g, (_, at) in zip(every, parameters, strict=True)]
        parts[0] = parts[0] if isinstance(model, transformers.GPT2Model) else parts[0].T
        gradients.append(np.vstack(parts))
    counts = [allowed[i, q].sum() - 1 for i, q, _ in targets]
    wanted = np.concatenate([np.full(c, np.log(9 * c)) for c in counts])
    return np.array(gradients), wanted, present.detach().numpy()


def least(rows, wanted):
    change = cp.Variable(rows.shape[1:])
    problem = cp.Problem(
        cp.Minimize(cp.sum_squares(change)),
        [rows.reshape(len(rows), -1) @ cp.vec(change, order="C") >= wanted],
    )
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return np.sqrt(problem.value), change.value


CASES = [
    (bert, "keys", TARGETS),
    (bert, "queries", TARGETS),
    (gpt2, "keys", TARGETS),
    (gpt2, "queries", TARGETS),
    (llama, "keys", TARGETS),
    (llama, "queries", TARGETS),
    (lambda: llama(True), "queries", TARGETS),
]


@pytest.mark.parametrize(("make", "change", "targets"), CASES)
def test_the_edit_is_the_least_change_of_the_running_models_attention(make, change, targets):
    model = prepared(make)
    edit = inspection(model).edit(LAYER, HEAD, targets, change=change)
    rows, wanted, present = rows_of_model(model, targets, change)
    value, weights = least(rows, wanted - present)
    assert edit.status == "optimal"
    assert edit.gap <= 1e-8
    # the softmax of Llama is computed in float32, so its logarithms have seven digits
    digits = 1e-5 if isinstance(model, transformers.LlamaModel) else 1e-7
    assert edit.value == pytest.approx(value, rel=digits)
    assert edit.norm == pytest.approx(edit.value, rel=1e-12)
    np.testing.assert_allclose(edit.weights, weights, atol=10 * digits * value)
    with edit.apply(model), torch.no_grad():
        after = leads(model, targets, (attention(model) > 0).numpy()).numpy()
        probabilities = [float(attention(model)[target]) for target in targets]
    assert (after >= wanted - 10 * digits).all()
    assert min(probabilities) >= 0.9 - 1e-6
    # a row with a multiplier is tight
    assert np.abs(after - wanted)[edit.solved.change.multipliers > 1e-6].max() <= 10 * digits


@pytest.mark.parametrize("change", ["keys", "queries"])
def test_the_edited_model_may_be_a_layer_with_cross_attention(change):
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).double()
    query, key = torch.randn(3, 4, 8).double(), torch.randn(3, 6, 8).double()
    found = attsvm.inspect.inspect(layer, {"query": query, "key": key, "value": key}, margins=False)
    edit = found.edit(0, 1, [(0, 1, 5), (1, 2, 0)], change=change)
    with torch.no_grad():
        probabilities = edit.edited(layer)(query, key, key, average_attn_weights=False)[1][:, 1]
    assert min(probabilities[0, 1, 5], probabilities[1, 2, 0]) >= 0.9 - 1e-9


def bloom():
    return small("Bloom", hidden_size=24, n_head=4, n_layer=2)


def gpt_neox():
    return small("GPTNeoX", rope_parameters=NEOX, **SMALL)


@pytest.mark.parametrize("change", ["keys", "queries"])
@pytest.mark.parametrize("make", [bloom, gpt_neox])
def test_fused_projections_biases_of_positions_and_partly_rotary_heads_are_edited(make, change):
    model = prepared(make)
    edit = inspection(model).edit(LAYER, HEAD, TARGETS, change=change)
    assert edit.status == "optimal"
    assert edit.value > 0
    with torch.no_grad(), edit.apply(model):
        probabilities = [float(attention(model)[target]) for target in TARGETS]
    assert min(probabilities) >= 0.9 - 1e-5


@pytest.mark.parametrize("change", ["keys", "queries"])
def test_the_metric_is_the_mean_change_of_logits_on_other_text(change):
    model, keep = prepared(bert), words(40, seed=5)
    edit = inspection(model).edit(LAYER, HEAD, TARGETS, change=change, keep=keep, ridge=0.5)
    # second moments by hand, of tokens and of projected queries; keys are centred, twice for the difference of two
    with torch.no_grad():
        states = model(**keep, output_hidden_states=True).hidden_states[LAYER].numpy()
    own = model.encoder.layer[LAYER].attention.self
    projected = [getattr(own, name)(torch.tensor(states)).detach().numpy()[..., 12:18] for name in ("query", "key")]
    there = keep["attention_mask"].numpy().astype(bool)
    pairs = there.sum(1)[:, None] * there  # each query and each key is in so many pairs
    keys = [states, projected[1] / np.sqrt(6)][change == "queries"]
    centred = np.sqrt(2) * (keys - (keys * there[..., None]).sum(1, keepdims=True) / there.sum(1)[:, None, None])
    constant = np.concatenate([states, np.ones((*states.shape[:2], 1))], -1)
    sides = {
        "keys": ((centred, there), (projected[0] / np.sqrt(6), pairs)),
        "queries": ((constant, there), (centred, pairs)),
    }
    factors = []
    for vectors, weights in sides[change]:
        moment = np.einsum("it,itd,ite->de", weights, vectors, vectors) / weights.sum()
        factors.append(np.linalg.cholesky(moment + 0.5 * np.trace(moment) / len(moment) * np.eye(len(moment))))
    rows, wanted, present = rows_of_model(model, TARGETS, change)
    whitened = np.linalg.solve(factors[0], rows) @ np.linalg.inv(factors[1]).T
    value, weights = least(whitened, wanted - present)
    assert edit.status == "optimal"
    assert edit.value == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(factors[0].T @ edit.weights @ factors[1], weights, atol=1e-5 * value)
    plain = inspection(model).edit(LAYER, HEAD, TARGETS, change=change)
    other = words(40, seed=6)
    assert edit.report(unrelated=other).total_variation < plain.report(unrelated=other).total_variation


def test_equal_queries_are_solved_and_certified():
    # the first token is the same everywhere, so that all rows have equal queries, and depend on each other
    model = prepared(bert)
    targets = [(0, 0, 3), (2, 0, 1), (3, 0, 6), (4, 0, 5), (5, 0, 2)]
    found = inspection(model)
    for change in ("keys", "queries"):
        edit = found.edit(0, 1, targets, change=change)
        assert edit.status == "optimal"
        assert edit.gap <= 1e-8
        with edit.apply(model), torch.no_grad():
            after = model(**words(), output_attentions=True).attentions[0][:, 1]
        assert min(float(after[target]) for target in targets) >= 0.9 - 1e-9


def test_targets_that_contradict_each_other_are_named():
    model = prepared(bert)
    for change in ("keys", "queries"):
        edit = inspection(model).edit(LAYER, HEAD, [*TARGETS, (2, 5, 4)], change=change)
        assert edit.status == "infeasible"
        assert edit.conflict == [(2, 5, 3), (2, 5, 4)]
        assert edit.shares[[2, 5]].sum() >= 0.99
        assert edit.lower > 1e12
        assert edit.gap == np.inf
        assert edit.leave_one_out() is None
        with pytest.raises(ProblemError, match="contradict"):
            edit.edited(model)


@pytest.mark.parametrize("make", [bert, llama])
def test_preserved_selections_keep_their_part_of_every_lead(make):
    model, keep = prepared(make), words(20, seed=5)
    part = 0.3
    found = inspection(model)
    edit = found.edit(LAYER, HEAD, TARGETS[:2], keep=keep, preserve=part)
    assert edit.status == "optimal"
    assert found.edit(LAYER, HEAD, TARGETS[:2], keep=keep).report(unrelated=keep).selections_changed > 0
    with torch.no_grad():
        before = attention(model, keep), attention(model)
        with edit.apply(model):
            after = attention(model, keep), attention(model)
    edited = torch.zeros(6, 7, dtype=torch.bool)
    edited[[0, 1], [6, 4]] = True
    for first, second, text, skipped in zip(
        before, after, (keep, words()), (torch.zeros(20, 7, dtype=torch.bool), edited), strict=True
    ):
        real = (text["attention_mask"].bool() & ~skipped)[..., None] & (first > 0)
        chosen = first.argmax(-1, keepdim=True)
        leads = [one.gather(-1, chosen).log() - one.log() for one in (first, second)]
        assert (leads[1] >= part * leads[0] - 1e-5)[real].all()  # Llama: a softmax in float32
    # without a part of the leads, no selection becomes a tie
    for every in (edit, found.edit(LAYER, HEAD, TARGETS[:2], keep=keep, preserve=0.0)):
        assert every.status == "optimal"
        assert every.report(unrelated=keep).selections_changed == 0


@pytest.mark.parametrize("make", [bert, gpt2, llama])
def test_forgotten_tokens_get_no_more_than_the_probability(make):
    model, text = prepared(make), words()
    edit = inspection(model).edit(LAYER, HEAD, forget=[1], probability=0.05)
    with torch.no_grad():
        before = attention(model)[..., 0]
        with edit.apply(model):
            after = attention(model)[..., 0]
    real = text["attention_mask"].bool()
    if make is not bert:
        real[:, 0] = False  # the first query sees nothing else
    assert edit.status == "optimal"
    assert before[real].max() > 0.5
    assert after[real].max() <= 0.05 + 1e-6
    assert edit.report(text).success == 1.0
    report = edit.report(words(seed=9))
    assert report.attention < report.attention_before
    by_position = inspection(model).edit(LAYER, HEAD, forget=lambda ids: np.flatnonzero(ids == 1), probability=0.05)
    assert by_position.value == edit.value


def test_leave_one_out_is_an_edit_without_each_sequence():
    model, found = prepared(bert), inspection(prepared(bert))
    expected = []
    for left in TARGETS:
        edit = found.edit(LAYER, HEAD, [target for target in TARGETS if target != left])
        with edit.apply(model), torch.no_grad():
            expected.append(int(attention(model)[left[:2]].argmax()) == left[2])
    assert found.edit(LAYER, HEAD, TARGETS).leave_one_out() == np.mean(expected)


def test_the_report_measures_the_running_model():
    model = prepared(gpt2)
    own, other = ({"input_ids": words(5, seed)["input_ids"]} for seed in (1, 8))
    edit = inspection(model, own).edit(LAYER, HEAD, lambda ids: [(5, 2)])
    report = edit.report(other, unrelated=other)
    with torch.no_grad():
        first, states = attention(model, other), model(**other).last_hidden_state
        with edit.apply(model):
            second, moved = attention(model, other), model(**other).last_hidden_state
    for before, after, found in (
        (report.success_before, report.success, lambda one: one[:, 5].argmax(-1) == 2),
        (report.attention_before, report.attention, lambda one: one[:, 5, 2]),
    ):
        assert before == pytest.approx(float(found(first).double().mean()), abs=1e-9)
        assert after == pytest.approx(float(found(second).double().mean()), abs=1e-9)
    assert report.total_variation == pytest.approx(float((first - second).abs().sum(-1).mean() / 2), abs=1e-9)
    assert report.output_change == pytest.approx(float((moved - states).norm() / states.norm()), rel=1e-9)
    assert report.leave_one_out == edit.leave_one_out()
    again = inspection(model, own).edit(LAYER, HEAD, edit.targets).report(other, [(i, 5, 2) for i in range(5)])
    assert again.success == report.success
    once = inspection(model, own).edit(LAYER, HEAD, iter(edit.targets)).report(other, ((i, 5, 2) for i in range(5)))
    assert once == again
    with pytest.raises(ProblemError, match="held_out: expected the text of the targets"):
        edit.report(targets=TARGETS)
    with pytest.raises(ProblemError, match="expected targets for the held-out text, or"):
        inspection(model).edit(LAYER, HEAD, TARGETS).report(other)


def test_weights_are_restored_and_found_in_a_model_around_the_inspected_one():
    model = prepared(bert)
    whole = transformers.BertForMaskedLM(model.config)
    whole.bert = copy.deepcopy(model)
    before = copy.deepcopy(model.state_dict())
    edit = inspection(model).edit(LAYER, HEAD, TARGETS, change="queries")
    copied = edit.edited(whole)
    with edit.apply(model) as same:
        assert same is model
        changed = copy.deepcopy(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
        assert torch.equal(copied.bert.state_dict()[name], changed[name])
    assert sum(not torch.equal(changed[name], before[name]) for name in before) == 2


@pytest.mark.parametrize("change", ["keys", "queries"])
def test_edited_weights_in_single_precision_are_rounded_once(change):
    model = prepared(bert).float()
    edit = inspection(model).edit(LAYER, HEAD, TARGETS, change=change)
    parts = [part.detach()[at].double().numpy().copy() for part, at in weight(model, change)]
    with edit.apply(model):
        edited = [part.detach()[at].numpy().copy() for part, at in weight(model, change)]
    exact = [part + more for part, more in zip(parts, (edit.weights[:24].T, edit.weights[-1]), strict=False)]
    for part, sum_of_both in zip(edited, exact, strict=True):
        np.testing.assert_array_equal(part, sum_of_both.astype(np.float32))


def test_a_scan_orders_heads_by_the_norms_of_their_edits():
    model = prepared(llama)
    found = inspection(model)
    scan = found.scan(TARGETS, leave_one_out=True, change="queries")
    edits = [
        found.edit(layer, head, TARGETS, change="queries") for layer, head in zip(scan.layer, scan.head, strict=True)
    ]
    assert len(edits) == 8
    np.testing.assert_allclose(scan.value, [edit.value for edit in edits], rtol=1e-9)
    assert (np.diff(scan.value) >= 0).all()
    assert scan.leave_one_out.tolist() == [edit.leave_one_out() for edit in edits]
    selected = {(head.layer, head.head): head.selected for head in found.heads}
    for k, at in enumerate(zip(scan.layer, scan.head, strict=True)):
        assert scan.before[k] == np.mean([selected[at][i, q] == a for i, q, a in TARGETS])


def test_a_scan_of_no_heads_is_refused():
    with pytest.raises(ProblemError, match="heads: expected at least one head, got none"):
        inspection(prepared(gpt2)).scan(TARGETS, heads=[])


def test_a_satisfied_request_needs_no_change():
    model = prepared(bert)
    found = inspection(model)
    chosen = next(head.selected for head in found.heads if (head.layer, head.head) == (LAYER, HEAD))
    edit = found.edit(LAYER, HEAD, [(0, 2, int(chosen[0, 2]))], probability=0.15)
    assert (edit.status, edit.value, edit.gap, edit.norm) == ("optimal", 0.0, 0.0, 0.0)


@pytest.mark.parametrize("given", [lambda ids: ids, lambda ids: (ids,)], ids=["tensor", "tuple"])
def test_edits_take_the_batches_that_inspections_take(given):
    model, (ids, other) = prepared(gpt2), (words(seed=seed)["input_ids"] for seed in (1, 2))
    edits, reports, scans = [], [], []
    for form in (lambda ids: {"input_ids": ids}, given):
        found = attsvm.inspect.inspect(model, form(ids), margins=False)
        edits.append(found.edit(LAYER, HEAD, TARGETS, keep=form(other)))
        reports.append(edits[-1].report(form(other), TARGETS, form(other)))
        scans.append(found.scan(TARGETS))
    np.testing.assert_array_equal(edits[1].weights, edits[0].weights)
    np.testing.assert_array_equal(scans[1].value, scans[0].value)
    assert reports[1] == reports[0]
    with edits[1].apply(model):
        selected = attention(model, {"input_ids": ids}).argmax(dim=-1)
    assert [int(selected[sequence, query]) for sequence, query, _ in TARGETS] == [token for *_, token in TARGETS]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "targets: expected either targets or forget, got neither"),
        ({"targets": TARGETS, "forget": [1]}, "targets: expected either targets or forget, got both"),
        ({"targets": []}, "targets: expected at least one"),
        ({"targets": 5}, "targets: expected a function, or triples, got int"),
        ({"targets": [(0, 6), (0, 6, 2)]}, "targets: expected at least one .* of integers, got (0, 6), (0, 6, 2)"),
        ({"forget": 5}, "forget: expected a function, or a collection of tokens, got int"),
        ({"targets": [(0, 6, 99)]}, "outside of 6 sequences of 7 tokens"),
        ({"targets": [(1, 6, 0)]}, "sequence 1 has no query at position 6"),
        ({"targets": [(0, 2, 5)]}, "query 2 of sequence 0 may not attend to token 5"),
        ({"targets": [(0, 0, 0)]}, "targets: expected queries that may attend to several tokens"),
        ({"targets": TARGETS, "change": "values"}, "change: expected 'keys' or 'queries', got 'values'"),
        ({"targets": TARGETS, "preserve": 0.5}, "preserve: expected keep"),
        ({"targets": TARGETS, "probability": 1.0}, "probability: expected a number between 0 and 1"),
        ({"forget": [2]}, "forget: expected some of the tokens"),
        ({"forget": lambda ids: [7]}, "forget: position: expected an integer from 0 to 6, got 7"),
        ({"forget": lambda ids: [-1]}, "forget: position: expected an integer >= 0, got -1"),
        ({"targets": TARGETS, "keep": 5}, "keep: expected the arguments of the model, got int without tensors"),
        ({"targets": TARGETS, "keep": torch.ones(2, 3)}, "keep: the model does not accept it"),
        ({"targets": TARGETS, "keep": {}}, "keep: expected the arguments of the model, got dict without tensors"),
        ({"targets": TARGETS, "keep": {"words": torch.ones(2, 3)}}, "keep: the model does not accept it"),
    ],
)
def test_bad_requests_have_clear_errors(options, message):
    with pytest.raises(ProblemError, match=message.replace("(", r"\(").replace(")", r"\)")):
        inspection(prepared(gpt2)).edit(LAYER, HEAD, **options)


def test_models_whose_logits_are_not_linear_in_the_weights_are_refused():
    config = transformers.Qwen3Config(vocab_size=50, num_key_value_heads=2, head_dim=6, **SMALL)
    with pytest.raises(ProblemError, match="normalises its queries and keys"):
        inspection(transformers.Qwen3Model(config)).edit(0, 0, TARGETS)
    with pytest.raises(ProblemError, match="expected one module"), torch.no_grad():
        inspection(prepared(bert)).edit(LAYER, HEAD, TARGETS).edited(AttentionOnly())
    wider = transformers.BertModel(transformers.BertConfig(vocab_size=50, **SMALL | {"hidden_size": 48}))
    with pytest.raises(ProblemError, match=r"expected weights \(24, 24\) in .*, got \(48, 48\)"), torch.no_grad():
        inspection(prepared(bert)).edit(LAYER, HEAD, TARGETS).edited(wider)
