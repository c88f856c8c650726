"""The guide's recipe for slides on several machines, with two workers."""

import re
from pathlib import Path

import numpy as np
import pytest

import attsvm

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "estimator.md"


def test_two_workers_train_the_classifiers_of_one_process(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
    distributed = pytest.importorskip("distributed", reason="Dask (extra `sweep`) is not installed")
    generator, folders = np.random.default_rng(0), [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        rows = [(f"slide_{i}", i % 2) for i in range(12)]
        for name, label in rows:
            features = generator.normal(size=(generator.integers(20, 60), 8)).astype(np.float32)
            features[:2, 0] += 3 * label
            torch.save(torch.from_numpy(features), folder / f"{name}.pt")
        (folder / "labels.csv").write_text("slide_id,label\n" + "".join(f"{name},{label}\n" for name, label in rows))
    [code] = re.findall(r"```python\n(def one_pass.*?)```", GUIDE.read_text(), re.DOTALL)
    recipe = {"attsvm": attsvm, "__name__": "__main__"}  # Dask sends such functions by value
    exec(code, recipe)  # the code as it is printed in the guide

    def classifiers():
        return [attsvm.AttentionClassifier(alpha=alpha, batch_size=5, random_state=0) for alpha in (1.0, 10.0)]

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        workers = list(client.scheduler_info()["workers"])
        found = recipe["train"](client, classifiers(), list(zip(workers, map(str, folders), strict=True)), 3, 24)
    for k, (classifier, alone) in enumerate(zip(found, classifiers(), strict=True)):
        for _ in range(3):
            for turn in range(2):
                recipe["one_pass"](alone, str(folders[(turn + k) % 2]), 24)
        assert classifier.n_iter_ == alone.n_iter_ == 18
        for name in ("prompt_", "head_", "intercept_"):
            # workers have other numbers of threads, so float32 rounds differently
            np.testing.assert_allclose(getattr(classifier, name), getattr(alone, name), rtol=1e-4, atol=1e-6)
