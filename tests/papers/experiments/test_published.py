"""The published order of optimizers against measured accuracies."""

from types import SimpleNamespace

import numpy as np
import pytest

from attsvm.papers.experiments.published import compared

PUBLISHED = {"mirror-1.1": 0.83, "mirror-3": 0.82, "mirror-2": 0.81}
ROWS = 10_000


def preset(published, scale=""):
    return SimpleNamespace(published=published, scale=scale, shape=SimpleNamespace(blocks=SimpleNamespace(layers=3)))


def result(name, accuracies, seed=0):
    runs = [
        {
            "optimizer": optimizer,
            "seed": seed,
            "best": {"epoch": 2, "test_accuracy": accuracy},
            "history": [{"epoch": 5}],
        }
        for optimizer, accuracy in accuracies.items()
    ]
    return {"preset": name, "data": {"test": ROWS}, "runs": runs}


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        ({"mirror-1.1": 0.80, "mirror-2": 0.70, "mirror-3": 0.75}, "holds"),
        ({"mirror-1.1": 0.80, "mirror-2": 0.75, "mirror-3": 0.70}, "does not hold"),
        ({"mirror-1.1": 0.80, "mirror-2": 0.70}, "holds in part"),
        ({"mirror-1.1": 0.70, "mirror-2": 0.80, "adam": 0.9}, "does not hold"),
        # two standard errors of a difference are 0.0113 at 80 % of 10,000 rows
        ({"mirror-1.1": 0.811, "mirror-2": 0.80}, "undecided"),
        ({"mirror-1.1": 0.812, "mirror-2": 0.80}, "holds in part"),
        # neighbours in the published order are too close to decide, the first and the last one are not
        ({"mirror-1.1": 0.80, "mirror-3": 0.809, "mirror-2": 0.818}, "does not hold"),
        ({"mirror-3": 0.9, "adam": 0.95}, "not measured"),
    ],
)
def test_an_order_holds_if_every_pair_is_clearly_in_it(measured, verdict):
    found = compared([result("paper", measured)], {"paper": preset(PUBLISHED)})
    (order,) = found["orders"]
    assert order["verdict"] == verdict
    assert order["published"] == ["mirror-1.1", "mirror-3", "mirror-2"]
    known = {name: accuracy for name, accuracy in measured.items() if name in PUBLISHED}
    assert order["measured"] == sorted(known, key=known.get, reverse=True)


def test_seeds_are_joined_and_widen_the_error():
    values = (0.80, 0.84, 0.82)
    results = [result("paper", {"mirror-2": value}, seed) for seed, value in enumerate(values)]
    results.append(results[0])  # the same run again is one run
    presets = {"paper": preset(PUBLISHED), "third": preset(PUBLISHED, "a third"), "small": preset({})}
    found = compared(results, presets)
    assert {row["preset"] for row in found["accuracies"]} == {"paper"}
    row = next(row for row in found["accuracies"] if row["optimizer"] == "mirror-2")
    assert row["measured"] == list(values)
    assert row["error"] ** 2 == pytest.approx(0.82 * 0.18 / ROWS + np.var(values, ddof=1) / 3)
    assert compared([result("small", {"adam": 0.5})], presets) is None
