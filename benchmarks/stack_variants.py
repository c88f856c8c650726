"""Does the hierarchical Att-SVM hold with what transformers have between attention layers?

Self-attention layers with residuals and a last layer with a given query, as in ``attsvm.Stack``, with one of

- "layer norm": every layer reads (x - mean)/deviation of each token, as keys, queries and values;
- "fixed MLP": x + A relu(B x) after each self-attention layer, with random A and B;
- "trained MLP": the same with A and B trained;
- "trained embeddings": the tokens of the first layer are trained;
- "causal", "masked": positions read earlier ones only; the last token of a sequence is masked;
- "plain": none of these.

Everything that is trained has one norm over all gradients. Exponential loss; step k is 0.03(1 + k/1000) long, and for
layer norm, whose tokens have d times the squared norm, a d-th of it. Gradients are those of JAX for logits relative to
the selected token, and vanish as floats at margins of about 700; a problem stops there. For the tokens that each layer
sees at the end, the relaxed Att-SVM is solved on the selected path.

    python benchmarks/stack_variants.py [--layers 2 --problems 16 --steps 9000 --seed 6000]

"saturated": each softmax on the path is above 0.99. "mixed": the share of the other problems whose loss is larger if
every softmax is replaced by its largest token. Of the saturated problems: "error", "ratio": median direction error and
mean margin ratio of the worst layer; "below": the share with errors below 1e-2; "margins": with margins within 5 % of
each other; "positions": the median error if all positions are required to have the margin 1.
"""

import argparse
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import attsvm
from attsvm.datasets import random_problem

VARIANTS = "plain", "causal", "masked", "layer norm", "fixed MLP", "trained MLP", "trained embeddings"
N, T, D, WIDTH = 3, 4, 10, 20
LEAST_GRADIENT = 1e-295


def read(variant: str, x: Any) -> Any:
    """What a layer reads of its tokens."""
    if variant != "layer norm":
        return x
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)


def pooled(W: Any, keys: Any, queries: Any, allowed: Any) -> tuple[Any, Any, Any]:
    """Attention (..., Q, T) of the queries, what they read, and the logits relative to the selected token.

    The sum of what is read starts at the selected token, so that nothing cancels in the gradient.
    """
    logits = jnp.where(allowed, jnp.einsum("nsd,de,nqe->nqs", keys, W, queries), -jnp.inf)
    winner = jax.lax.stop_gradient(logits.argmax(axis=-1))
    selected = jnp.take_along_axis(keys, winner[..., None], axis=1)
    gaps = keys[:, None] - selected[:, :, None]
    relative = jnp.einsum("nqsd,de,nqe->nqs", gaps, W, queries)
    weight = jnp.exp(jnp.where(allowed, relative, -jnp.inf))
    attention = weight / weight.sum(axis=-1, keepdims=True)
    return attention, selected, jnp.einsum("nqs,nqsd->nqd", attention, gaps)


def forward(variant: str, trained: dict[str, Any], given: dict[str, Any]) -> tuple[list[Any], list[Any], Any]:
    """Tokens that each layer reads, attention of each layer, and the output relative to the selected token."""
    every = {**given, **trained}
    layers = sum(name.startswith("W") for name in trained)
    x, seen, attentions = every["X"], [], []
    for number in range(layers - 1):
        keys = read(variant, x)
        attention, selected, rest = pooled(every[f"W{number}"], keys, keys, given["allowed"])
        seen.append(keys)
        attentions.append(attention)
        x = x + selected + rest
        if "MLP" in variant:
            hidden = jax.nn.relu(jnp.einsum("ntd,wd->ntw", x, every["B"][number]))
            x = x + jnp.einsum("ntw,dw->ntd", hidden, every["A"][number])
    keys = read(variant, x)
    attention, selected, rest = pooled(every[f"W{layers - 1}"], keys, given["Z"][:, None], given["in_use"][:, None])
    output = jnp.einsum("nqd,d->n", selected, given["v"]) + jnp.einsum("nqd,d->n", rest, given["v"])
    return [*seen, keys], [*attentions, attention[:, 0]], output


def loss(variant: str, trained: dict[str, Any], given: dict[str, Any]) -> Any:
    return jnp.mean(jnp.exp(-given["y"] * forward(variant, trained, given)[2]))


def step(variant: str, given: dict[str, Any], trained: dict[str, Any], k: Any) -> tuple[dict[str, Any], None]:
    gradient = jax.vmap(jax.grad(partial(loss, variant)))(trained, given)

    def over(x: Any) -> tuple[int, ...]:
        return tuple(range(1, x.ndim))

    def along(scale: Any, x: Any) -> Any:
        return scale.reshape(-1, *(1,) * (x.ndim - 1))

    largest = jnp.stack([jnp.abs(x).max(axis=over(x)) for x in gradient.values()]).max(axis=0)
    known = largest > LEAST_GRADIENT
    gradient = {name: x / along(jnp.where(known, largest, 1.0), x) for name, x in gradient.items()}
    length = jnp.sqrt(sum((x**2).sum(axis=over(x)) for x in gradient.values()))
    size = 0.03 / D if variant == "layer norm" else 0.03
    rate = jnp.where(known, size * (1 + k / 1000) / jnp.where(known, length, 1.0), 0.0)
    return {name: x - along(rate, x) * gradient[name] for name, x in trained.items()}, None


def start(variant: str, layers: int, number: int, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    problem, generator = random_problem(N, T, D, seed=seed, batch=(number,)), np.random.default_rng(seed)
    trained = {f"W{i}": generator.normal(scale=D**-0.5, size=(number, D, D)) for i in range(layers)}
    in_use = np.ones((number, N, T), bool)
    in_use[:, 0, -1] = variant != "masked"
    allowed = np.broadcast_to(in_use[:, :, None], (number, N, T, T)).copy()
    if variant == "causal":
        allowed &= np.tril(np.ones((T, T), bool))
    given = {"X": problem.tokens, "Z": problem.queries, "y": problem.labels, "v": problem.head}
    given |= {"allowed": allowed, "in_use": in_use}
    given["A"] = generator.normal(scale=0.5 * WIDTH**-0.5, size=(number, layers - 1, D, WIDTH))
    given["B"] = generator.normal(scale=D**-0.5, size=(number, layers - 1, WIDTH, D))
    moved = {"trained MLP": ("A", "B"), "trained embeddings": ("X",)}.get(variant, ())
    trained |= {name: given.pop(name) for name in moved}
    return trained, given


def measured(variant: str, layers: int, number: int, steps: int, seed: int) -> str:
    trained, given = start(variant, layers, number, seed)
    advance = jax.jit(lambda x: jax.lax.scan(partial(step, variant, given), x, jnp.arange(steps))[0])
    trained = {name: np.asarray(x) for name, x in advance(trained).items()}
    seen, attentions, _ = jax.vmap(partial(forward, variant))(trained, given)
    seen, attentions = [np.asarray(x) for x in seen], [np.asarray(x) for x in attentions]
    on = np.zeros((number, N, T), bool)
    np.put_along_axis(on, attentions[-1].argmax(axis=-1)[..., None], True, axis=-1)
    least, margins, errors, ratios, plain = attentions[-1].max(axis=-1).min(axis=-1), [], [], [], []
    for index in reversed(range(layers)):
        last = index == layers - 1
        W, selected = trained[f"W{index}"], attentions[index].argmax(axis=-1)
        queries, allowed = (given["Z"], given["in_use"]) if last else (seen[index], given["allowed"])
        query_mask = None if last else given["in_use"]
        problem = attsvm.Problem(seen[index], queries=queries, mask=allowed, query_mask=query_mask)
        relaxed = None if last else ~on
        solution = attsvm.solve_svm(problem, selected, relaxed=relaxed)
        errors.insert(0, attsvm.direction_error(W, solution, axis=(-2, -1)))
        logits = attsvm.measures.token_logits(problem, W)
        chosen = np.zeros(logits.shape, bool)
        np.put_along_axis(chosen, np.reshape(selected, logits.shape[:-1])[..., None], True, axis=-1)
        gaps = np.where(chosen | ~problem.canonical.allowed, np.inf, logits.max(axis=-1, keepdims=True) - logits)
        if not last:
            gaps[~on | (gaps == np.inf).all(axis=-1)] = np.inf
            everywhere = attsvm.solve_svm(problem, selected)
            plain.append(attsvm.direction_error(W, np.nan_to_num(everywhere.direction), axis=(-2, -1)))
            least = np.minimum(least, np.where(on, attentions[index].max(axis=-1), 1.0).min(axis=(-2, -1)))
            reads = np.take_along_axis(chosen & on[..., None], chosen.argmax(axis=-1)[..., None], axis=-1)
            below = on.copy()
            for b, i, t in np.argwhere(reads[..., 0]):
                below[b, i, selected[b, i, t]] = True
            on = below
        margins.insert(0, gaps.min(axis=tuple(range(1, gaps.ndim))))
        ratios.insert(0, margins[0] * solution.value / np.linalg.norm(W, axis=(-2, -1)))
    kept = (least > 0.99) & np.isfinite(margins).all(axis=0)
    hard = {name: 1e9 * x if name.startswith("W") else x for name, x in trained.items()}
    worse = np.greater(*(jax.vmap(partial(loss, variant))(x, given) for x in (hard, trained)))[~kept]
    counts = f"| {variant} | {kept.sum()} of {number} | {f'{worse.mean():.0%}' if worse.size else ''} |"
    if not kept.any():
        return f"{counts} | | | | | |"
    worst, apart = np.max(errors, axis=0)[kept], np.array(margins)[:, kept]
    return (
        f"{counts} {np.median(worst):.1e} | {np.mean(worst < 1e-2):.0%} | "
        f"{np.mean(np.min(ratios, axis=0)[kept]):.3f} | {np.mean(apart.max(axis=0) <= 1.05 * apart.min(axis=0)):.0%} | "
        f"{np.median(np.min(plain, axis=0)[kept]):.1e} | {np.median(apart.min(axis=0)):.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--problems", type=int, default=16)
    parser.add_argument("--steps", type=int, default=9000)
    parser.add_argument("--seed", type=int, default=6000)
    parser.add_argument("--variants", nargs="*", choices=VARIANTS, default=VARIANTS)
    arguments = parser.parse_args()
    print("| variant | saturated | mixed | error | below | ratio | margins | positions | median margin |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    with jax.enable_x64(True), np.errstate(invalid="ignore"):
        for variant in arguments.variants:
            print(measured(variant, arguments.layers, arguments.problems, arguments.steps, arguments.seed), flush=True)


if __name__ == "__main__":
    main()
