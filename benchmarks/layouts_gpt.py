"""A small GPT trained with Muon on several splits of its weights of queries, keys and values, and with AdamW.

    python benchmarks/layouts_gpt.py [steps]

Sequences of eight different letters, which are then repeated from a random one of them on: the next letter is the one
that followed the last time. Two layers, four heads with keys of their own (MHA)
or in two groups (GQA), 32 dimensions, two seeds. All steps of Muon have the same root mean square, 0.2 times the
learning rate, whatever the split. About 2 minutes of processor time; prints the last table of docs/notes/layouts.md.
"""

import argparse

import numpy as np
import torch
from torch import nn

from attsvm.torch.spectral_descent import newton_schulz
from cases import markdown
from weight_decay_gpt import GPT, HALF, LENGTH, LETTERS, WIDTH

HEADS, SEEDS = 4, 2
M = WIDTH // HEADS
RATE, BETA, EARLY = 0.018, 0.95, 150
SPLITS = ("one matrix", "Q, K, V", "groups", "heads")


class Attention(nn.Module):
    """Causal attention with one weight of queries, keys and values, whose rows are H, g and g blocks of m."""

    def __init__(self, groups):
        super().__init__()
        self.groups, self.norm = groups, nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * groups) * M, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def parts(self, x):
        """Queries, keys and values (..., heads or groups, m)."""
        return x.unflatten(-1, (-1, M)).split([HEADS, self.groups, self.groups], dim=-2)

    def forward(self, x):
        query, key, value = (part.transpose(1, 2) for part in self.parts(self.qkv(self.norm(x))))
        key, value = (part.repeat_interleave(HEADS // self.groups, dim=1) for part in (key, value))
        with torch.no_grad():
            self.logits = query @ key.mT / M**0.5
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(-2))


def batch(size, generator):
    half = torch.rand(size, LETTERS, generator=generator).argsort(dim=-1)[:, :HALF]
    first = torch.randint(HALF, (size, 1), generator=generator)
    return torch.cat([half, half.gather(1, (first + torch.arange(HALF)) % HALF)], dim=1)


def loss_of(model, text):
    logits = model(text)[:, HALF:-1]
    return nn.functional.cross_entropy(logits.flatten(0, 1), text[:, HALF + 1 :].flatten())


def rows_of(split, groups):
    """The numbers of rows of the matrices in which a weight of queries, keys and values is taken apart."""
    return {
        "one matrix": [(HEADS + 2 * groups) * M],
        "Q, K, V": [HEADS * M, groups * M, groups * M],
        "groups": [HEADS // groups * M] * groups + [M] * 2 * groups,
        "heads": [M] * (HEADS + 2 * groups),
    }[split]


def directions(momentum, rows):
    """The polar factors of the matrices, with entries of root mean square 1."""
    parts = [newton_schulz(part[None], 5, (3.4445, -4.7750, 2.0315), torch.float32)[0] for part in momentum.split(rows)]
    return torch.cat([part * max(part.shape) ** 0.5 for part in parts])


def trained(groups, split, steps, seed):
    torch.manual_seed(seed)
    generator, model = torch.Generator().manual_seed(seed + 1), GPT(lambda: Attention(groups))
    own = [layer.qkv.weight for layer in model.attention]
    others = [weight for weight in model.parameters() if not any(weight is one for one in own)]
    adam = torch.optim.AdamW(others if split != "AdamW" else model.parameters(), lr=3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda k: 1 - k / steps)
    momenta = [torch.zeros_like(weight) for weight in own]
    for step in range(steps):
        loss_of(model, batch(64, generator)).backward()
        adam.step()
        if split != "AdamW":
            with torch.no_grad():
                for weight, momentum in zip(own, momenta, strict=True):
                    momentum.mul_(BETA).add_(weight.grad)
                    along = directions(weight.grad + BETA * momentum, rows_of(split, groups))
                    weight -= 0.2 * RATE * (1 - step / steps) * along
        model.zero_grad()
        schedule.step()
        if step + 1 == EARLY:
            early = held_out(model)[0]
    return model, early


@torch.no_grad()
def held_out(model):
    """The loss and the share of right letters on texts that are not trained on."""
    text = batch(256, torch.Generator().manual_seed(100))
    right = (model(text)[:, HALF:-1].argmax(-1) == text[:, HALF + 1 :]).float().mean().item()
    return loss_of(model, text).item(), right


@torch.no_grad()
def measured(model, early, groups):
    """Losses and share of right letters, ranks, and the gaps of the logits over norms of the weights."""
    loss, right = held_out(model)
    rows = []
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()[HALF:-1]
    for layer in model.attention:
        query, key, _ = (part.movedim(-2, 0).mT for part in layer.parts(layer.qkv.weight.T))  # (heads, m, d)
        shared = key.repeat_interleave(HEADS // groups, dim=0)
        W = shared.mT @ query
        beside = W.unflatten(0, (groups, -1)).movedim(1, 2).flatten(-2)
        logits = layer.logits[:, :, HALF:-1].masked_fill(~mask, -torch.inf)
        top = logits.topk(2, dim=-1).values
        gap = M**0.5 * (top[..., 0] - top[..., 1]).median(dim=-1).values.median(dim=0).values.mean()
        spectral = torch.linalg.matrix_norm(W, 2).max()
        whole = torch.linalg.matrix_norm(key.flatten(0, 1), 2) * torch.linalg.matrix_norm(query.flatten(0, 1), 2)
        nuclear = torch.linalg.matrix_norm(beside, "nuc").sum()
        rows.append(
            [
                _rank(W),
                _rank(beside),
                logits.softmax(-1).amax(-1).median(),
                gap / spectral,
                gap / whole,
                gap / nuclear,
            ]
        )
    return [early, loss, right, *np.array(rows).mean(axis=0)]


def _rank(matrices):
    """The exponential of the entropy of the singular values over their sum, averaged."""
    values = torch.linalg.svdvals(matrices)
    shares = values / values.sum(-1, keepdim=True)
    return torch.special.entr(shares).sum(-1).exp().mean()


def main():
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="?", type=int, default=400)
    steps = parser.parse_args().steps
    table = []
    for layout, groups in (("MHA", HEADS), ("GQA", 2)):
        for split in (*SPLITS, "AdamW"):
            if split == "groups" and groups == HEADS:
                continue
            found = np.array([measured(*trained(groups, split, steps, seed), groups) for seed in range(SEEDS)])
            mean, span = found.mean(axis=0), np.ptp(found[:, 0])
            table.append(
                [
                    layout,
                    split,
                    f"{mean[0]:.3f} ± {span / 2:.3f}",
                    f"{mean[1]:.1e}",
                    f"{mean[2]:.1%}",
                    *(f"{number:.2f}" for number in mean[3:6]),
                    *(f"{number:.3f}" for number in mean[6:]),
                ]
            )
            print(table[-1], flush=True)
    print(
        markdown(
            [
                "layout",
                "one matrix of Muon is",
                f"loss after {EARLY} steps",
                "at the end",
                "right",
                "rank of W_h",
                "rank of [W_1 … W_G]",
                "largest probability",
                "gap / largest ‖W_h‖",
                "gap / ‖[K]‖ ‖[Q]‖",
                "gap / Σ ‖[W_1 … W_G]‖_*",
            ],
            table,
        )
    )


if __name__ == "__main__":
    main()
