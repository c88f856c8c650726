"""The published data of benign overfitting: the formulas, compact coordinates, and training against PyTorch."""

import numpy as np
import pytest
from scipy.stats import ks_2samp

import attsvm
from attsvm.datasets import signal_noise
from attsvm.optimizers import gradient_descent

RATE = 5e-3


def test_without_noise_tokens_are_the_published_signals():
    weak, signal = 0.3, 7.0
    data = signal_noise(6, 5, 10, signal=signal, weak=weak, label_noise=0.35, num_test=4, seed=3)
    other = signal_noise(6, 5, 10, signal=2 * signal, weak=weak, label_noise=0.35, num_test=4, seed=3)
    e = np.eye(10)
    for part, classes in (("train", [1, 1, 1, -1, -1, -1]), ("test", [1, 1, -1, -1])):
        # the noise does not depend on the signal, which doubles
        signals = getattr(other, part).tokens - getattr(data, part).tokens
        own = signal * np.where(np.array(classes)[:, None] == 1, e[0], e[1])
        against = signal * np.where(np.array(classes)[:, None] == 1, e[1], e[0])
        none = np.zeros_like(own)
        np.testing.assert_allclose(signals, np.stack([own, weak * own, weak * against, none, none], 1), atol=1e-14)
    # ceil(0.35 · 6) = 3, and half of it, rounded down, in each class
    assert data.flipped.tolist() == [True, False, False, True, False, False]
    assert data.train.labels.tolist() == [-1, 1, 1, 1, -1, -1]
    assert data.test.labels.tolist() == [1, 1, -1, -1]
    np.testing.assert_allclose(data.train.head, (e[0] - e[1]) / np.sqrt(2) / signal, rtol=1e-15)
    assert data.noise_tokens.tolist() == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("label_noise", "number", "flipped"), [(0, 20, 0), (0.2, 20, 4), (0.07, 100, 6), (0.5, 20, 10)]
)
def test_as_many_labels_are_flipped_as_published(label_noise, number, flipped):
    assert signal_noise(number, 4, 3, label_noise=label_noise, num_test=2).flipped.sum() == flipped


def test_compact_coordinates_have_inner_products_of_the_same_distribution():
    def of_draws(compact):
        for seed in range(600):
            data = signal_noise(2, 4, 12, num_test=2, signal=2.0, seed=seed, compact=compact)
            tokens = data.train.tokens.reshape(8, -1)
            assert tokens.shape[1] == (10 if compact else 12)
            gram = tokens @ tokens.T
            yield [*np.linalg.eigvalsh(gram), gram[0, 5], gram[3, 3], tokens[7] @ data.train.head]

    for full, compact in zip(np.transpose([*of_draws(False)]), np.transpose([*of_draws(True)]), strict=True):
        # a wrong degree of freedom of one diagonal entry gives 1e-6 and less in one of them
        assert ks_2samp(full, compact).pvalue > 1e-3


def torch_losses(data, start, steps):
    """The loss before every step of gradient descent on W and p, in PyTorch."""
    torch = pytest.importorskip("torch")
    tokens, labels, head = (torch.tensor(x) for x in (data.train.tokens, data.train.labels, data.train.head))
    W = torch.tensor(start, requires_grad=True)
    p = torch.zeros(W.shape[1], dtype=torch.float64, requires_grad=True)
    descent = torch.optim.SGD([W, p], lr=RATE)
    losses = []
    for _ in range(steps):
        descent.zero_grad()
        attention = torch.softmax(tokens @ (W @ p), dim=-1)
        output = (attention * (tokens @ head)).sum(dim=-1)
        loss = torch.log1p(torch.exp(-labels * output)).mean()
        losses.append(loss.item())
        loss.backward()
        descent.step()
    return np.array(losses)


def error_rate(problem, weights):
    logits = problem.tokens @ weights
    attention = np.exp(logits - logits.max(axis=-1, keepdims=True))
    output = (attention * (problem.tokens @ problem.head)).sum(axis=-1)
    return np.mean(problem.labels * output <= 0)


def trained_beside_torch(dim, signal, steps, record):
    """The published run: W uniform in ±1/√d, p = 0, gradient descent on both."""
    data = signal_noise(dim=dim, signal=signal, seed=0)
    start = np.random.default_rng(1).uniform(-1, 1, (dim, dim)) / np.sqrt(dim)
    losses = torch_losses(data, start, steps)
    init = {"W": start, "p": np.zeros(dim)}
    options = {"optimizer": gradient_descent(RATE), "steps": steps, "record": record}
    run = attsvm.train(data.train, attention="key_prompt", init=init, **options)
    recorded = run.history["steps"] < steps
    assert recorded.sum() >= 10
    # gradient descent from p = 0 amplifies rounding by less than 100 in 1,000 steps
    np.testing.assert_allclose(run.history["loss"][recorded], losses[run.history["steps"][recorded]], rtol=1e-8, atol=0)
    return data, run


def test_losses_agree_with_an_independent_loop_in_torch():
    trained_beside_torch(24, 3.0, 60, 20)


@pytest.mark.long
@pytest.mark.optimized
def test_at_the_published_size_the_losses_agree_and_overfitting_is_benign():
    dim, steps = 2000, 1000
    data = signal_noise(dim=dim, seed=0)
    start = np.random.default_rng(1).uniform(-1, 1, (dim, dim)) / np.sqrt(dim)
    losses = torch_losses(data, start, steps)
    # W changes in the span of the tokens only: keys in its 160 coordinates take a tenth of the time and memory
    span = np.linalg.qr(data.train.tokens.reshape(-1, dim).T)[0]
    tokens, labels, head = data.train.tokens, data.train.labels, data.train.head
    problem = attsvm.Problem(tokens, labels=labels, head=head, keys=tokens @ span)
    options = {"optimizer": gradient_descent(RATE), "steps": steps, "record": range(0, steps, 50)}
    init = {"W": span.T @ start, "p": np.zeros(dim)}
    run = attsvm.train(problem, attention="key_prompt", rank=dim, init=init, **options)
    recorded = run.history["steps"] < steps
    np.testing.assert_allclose(run.history["loss"][recorded], losses[run.history["steps"][recorded]], rtol=1e-8, atol=0)
    W = start + span @ (run.parameters["W"] - init["W"])
    weights = W @ run.parameters["p"]
    assert error_rate(data.train, weights) == 0
    assert error_rate(data.test, weights) < 0.01


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_tokens": 3}, "num_tokens: expected an integer >= 4, got 3"),
        ({"label_noise": 0.6}, r"label_noise: expected a number in \[0, 0.5\], got 0.6"),
        ({"signal": 0}, "signal: expected a number > 0, got 0"),
        ({"dim": 100, "compact": True}, r"dim: expected at least n T \+ 2 = 162 for compact coordinates, got 100"),
    ],
)
def test_arguments_out_of_range_are_named(changes, message):
    with pytest.raises(attsvm.ProblemError, match=message):
        signal_noise(**changes)
