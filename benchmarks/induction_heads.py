"""Reasons of heads whose answer is known: induction heads of a two-layer model that is trained here.

    python benchmarks/induction_heads.py [--learned] [--norm] [--seed 0] [--steps 1500]

Trains an attention-only model on sequences that repeat a period (under a minute on one core), names its sets of heads,
splits the logits of its induction heads by origin, and tests the reason on held-out sequences.
"""

import argparse
import time

import torch

import attsvm.torch
from attsvm.inspect.attention_only import (
    AttentionOnly,
    induction_loss,
    repeated_sequences,
    trained_on_repetitions,
)

SEQUENCES = 64
"""To explain, and as many held-out ones."""


def main() -> None:
    """Train, explain and test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learned", action="store_true", help="learned positions; default rotary")
    parser.add_argument("--norm", action="store_true", help="a layer norm before each layer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1500)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    model = AttentionOnly(rotary=not given.learned, norm=given.norm)
    start = time.process_time()
    loss = trained_on_repetitions(model, given.steps, seed=given.seed)
    positions, norms = "learned" if given.learned else "rotary", "layer norm" if given.norm else "no norm"
    print(f"{positions} positions, {norms}: loss {loss:.1e} after {time.process_time() - start:.0f} s of CPU time")

    generator = torch.Generator().manual_seed(given.seed + 1000)
    tokens, _ = repeated_sequences(SEQUENCES, generator)
    held_out, repeated = repeated_sequences(SEQUENCES, generator)
    model.double()
    inspection = attsvm.inspect.inspect(model, {"input_ids": tokens}, margins=False)
    for name, measure in (("previous token", "previous_share"), ("induction", "induction_share")):
        shares = inspection.measure(measure)[0 if name == "previous token" else 1]
        print(f"{name} shares:", " ".join(f"{share:.2f}" for share in shares))
    sets = inspection.sets()
    print("sets:", "; ".join(f"{name}: {', '.join(f'{a}.{b}' for a, b in heads)}" for name, heads in sets.items()))
    heads = [head for layer, head in sets["induction"] if layer == 1]
    explanation = inspection.explain(1, heads, pattern="induction")
    print(f"margin {explanation.margin:.2f}, sum of the parts to {explanation.error:.1e}")
    for pair in explanation.pairs(4):
        print(" ", pair)
    best = explanation.pairs(1)[0]
    batch = {"input_ids": held_out}
    print("attention:", explanation.test(batch, best.query, best.key))
    of_output = explanation.test(
        batch, best.query, best.key, measure=lambda logits: -float(induction_loss(logits, held_out, repeated))
    )
    print(f"loss {-of_output.score:.1e}, {-of_output.resampled:.1f} with everything resampled:", of_output)


if __name__ == "__main__":
    main()
