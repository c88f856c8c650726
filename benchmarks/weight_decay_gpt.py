"""A small GPT trained with AdamW and Muon at three weight decays: the sizes of K_h and Q_h, and the gaps of its heads.

    python benchmarks/weight_decay_gpt.py [steps]

Sequences of random letters whose second half repeats the first one. Two layers, two heads, 32 dimensions; about 2
minutes of processor time. Prints tables of docs/notes/weight_decay.md.
"""

import argparse

import numpy as np
import torch
from torch import nn

import attsvm
from attsvm.theory.conditions import is_feasible
from cases import markdown

LETTERS, HALF, WIDTH, HEADS, LAYERS = 12, 8, 32, 2, 2
LENGTH = 2 * HALF
DECAYS = (0.1, 1.0, 5.0)
RATE = {"AdamW": 3e-3, "Muon": 0.02}


class Attention(nn.Module):
    """Causal attention with layer norm; keeps its inputs and weights of the last call."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x):
        inputs = self.norm(x)
        heads = [
            layer(inputs).unflatten(-1, (HEADS, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        ]
        mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        self.inputs = inputs.detach()
        return x + self.out(mixed.transpose(1, 2).flatten(-2))


class GPT(nn.Module):
    """Embeddings, blocks of attention and a two-layer network, and a linear output."""

    def __init__(self, attention=Attention):
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.attention = nn.ModuleList(attention() for _ in range(LAYERS))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))
            for _ in range(LAYERS)
        )
        self.out = nn.Linear(WIDTH, LETTERS)

    def forward(self, text):
        x = self.letters(text) + self.places.weight
        for attention, mlp in zip(self.attention, self.mlp, strict=True):
            x = attention(x)
            x = x + mlp(x)
        return self.out(x)


def batch(size, generator):
    half = torch.randint(LETTERS, (size, HALF), generator=generator)
    return torch.cat([half, half], dim=1)


def loss_of(model, text):
    logits = model(text)[:, HALF - 1 : -1]
    return nn.functional.cross_entropy(logits.flatten(0, 1), text[:, HALF:].flatten())


def factors(model):
    """The matrices K_h and Q_h, shape (layers, 2, heads, m, d)."""
    found = [[layer.key.weight, layer.query.weight] for layer in model.attention]
    return torch.stack([torch.stack(pair) for pair in found]).detach().unflatten(2, (HEADS, -1))


def sizes(name, model):
    """The largest norm of a K_h or Q_h: that of the steps, spectral for Muon and the largest entry for AdamW."""
    matrices = factors(model)
    return float(torch.linalg.matrix_norm(matrices, 2).max() if name == "Muon" else matrices.abs().max())


def trained(name, decay, steps):
    torch.manual_seed(0)
    generator, model = torch.Generator().manual_seed(1), GPT()
    own = [weight for layer in model.attention for weight in (layer.query.weight, layer.key.weight)]
    others = [weight for weight in model.parameters() if not any(weight is one for one in own)]
    kind = torch.optim.AdamW if name == "AdamW" else torch.optim.Muon
    # the decay is that of keys and queries alone, so that what is seen is theirs
    optimizers = [kind(own, lr=RATE[name], weight_decay=decay), torch.optim.AdamW(others, lr=3e-3, weight_decay=0.0)]
    schedules = [torch.optim.lr_scheduler.LambdaLR(one, lambda k: 1 - k / steps) for one in optimizers]
    over, left, reach, first = [], 1.0, None, sizes(name, model)
    for step in range(steps):
        rate = schedules[0].get_last_lr()[0]
        loss = loss_of(model, batch(64, generator))
        loss.backward()
        for one in (*optimizers, *schedules):
            one.step()
        for one in optimizers:
            one.zero_grad()
        left *= 1 - rate * decay
        # N(W_t) ≤ N(W_0) Π + (1 − Π)/λ for steps of length one
        bound = first * left + (1 - left) / decay
        size = sizes(name, model)
        over.append(size / bound)
        if reach is None and bound <= 1.01 / decay:
            reach = step + 1
    return model, loss.item(), size, reach, max(over), left


def heads(model, decay):
    """Of each head on 8 texts: median largest probability, share of separable queries' selection, gap and R/V."""
    text = batch(8, torch.Generator().manual_seed(2))
    rows = []
    with torch.no_grad():
        model(text)
    mask = np.tril(np.ones((LENGTH, LENGTH), dtype=bool))
    for number, layer in enumerate(model.attention):
        inputs = layer.inputs.double().numpy()
        for head, (K, Q) in enumerate(zip(*factors(model)[number].double().numpy(), strict=True)):
            W = K.T @ Q / np.sqrt(K.shape[0])
            # the second half, where there is something to select; the ball of W has the radius R²/√m
            problem = attsvm.Problem(
                inputs, queries=inputs[:, HALF:-1], mask=np.broadcast_to(mask[HALF:-1], (8, HALF - 1, LENGTH))
            )
            logits = np.where(mask[HALF:-1], np.einsum("ntd,de,nqe->nqt", inputs, W, inputs[:, HALF:-1]), -np.inf)
            selected = logits.argmax(axis=-1)
            ordered = np.sort(logits, axis=-1)
            probability = 1 / np.exp(logits - ordered[..., -1:]).sum(axis=-1)
            svm = attsvm.solve_svm(problem, selected, norm="spectral", tol=1e-4)
            ratio = decay**-2 / np.sqrt(K.shape[0]) / svm.value if is_feasible(svm).all() else 0.0
            gap = ordered[..., -1] - ordered[..., -2]
            rows.append(
                [
                    f"{number}.{head}",
                    f"{np.median(probability):.2f}",
                    f"{gap.min():.3f} / {np.median(gap):.2f}",
                    f"{ratio:.3g}" if ratio else "not separable",
                ]
            )
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="?", type=int, default=1500)
    steps = parser.parse_args().steps
    table, of_heads = [], []
    for name in ("AdamW", "Muon"):
        for decay in DECAYS:
            model, loss, size, reach, over, left = trained(name, decay, steps)
            table.append(
                [
                    name,
                    f"{decay:g}",
                    f"{loss:.3f}",
                    f"{size:.3f}",
                    f"{1 / decay:.3g}",
                    f"{over:.2f}",
                    f"{1 - left:.2f}",
                    "-" if reach is None else str(reach),
                ]
            )
            print(table[-1], flush=True)
            if name == "Muon":
                of_heads += [[f"{decay:g}", *row] for row in heads(model, decay)]
                print(of_heads[-4:], flush=True)
    print(
        markdown(
            [
                "optimizer",
                "λ",
                "loss at the end",
                "largest N(K_h), N(Q_h)",
                "1/λ",
                "largest ratio to the bound, any step",
                "reach",
                "bound ≤ 1.01/λ from step",
            ],
            table,
        )
    )
    print(markdown(["λ (Muon)", "head", "median probability", "least / median gap", "R²/(√m V)"], of_heads))
