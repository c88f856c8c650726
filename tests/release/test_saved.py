"""Files of earlier versions load with the values that were saved, and runs continue (docs/guide/versions.md)."""

import json
import shutil

import numpy as np
import pytest

import attsvm
from attsvm.errors import ProblemError
from release.saved import FILES, KINDS, predicted, save_models, save_sweep, values

VERSIONS = sorted(path.name for path in FILES.iterdir())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_an_earlier_version_loads(name, version):
    saved = json.loads((FILES / version / "values.json").read_text(encoding="utf-8"))
    loaded = KINDS[name][0].load(FILES / version / f"{name}.npz")
    found = values(name, loaded)
    assert found.keys() == saved[name].keys()
    for key, value in saved[name].items():
        np.testing.assert_array_equal(np.asarray(found[key]), np.asarray(value), err_msg=key)


def check_models(folder, said):
    for name, values_of in said.items():
        found = predicted(attsvm.load_model(folder / f"model-{name}.npz"))
        assert found.keys() == values_of.keys()
        for key, value in values_of.items():
            # another processor may round differently
            np.testing.assert_allclose(found[key], value, rtol=1e-9, atol=1e-12, err_msg=f"{name} {key}")


@pytest.mark.parametrize("version", VERSIONS)
def test_models_of_an_earlier_version_predict_as_they_did(version):
    said = json.loads((FILES / version / "values.json").read_text(encoding="utf-8"))
    check_models(FILES / version, said.get("models", {}))  # 1.0 has no model files


@pytest.mark.long
def test_models_of_this_version_predict_as_they_did(tmp_path):
    check_models(tmp_path, json.loads(json.dumps(save_models(tmp_path))))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_of_an_earlier_version_continues(version):
    problem = attsvm.Problem.load(FILES / version / "problem.npz")
    run = attsvm.Run.load(FILES / version / "run.npz")
    further = attsvm.train(problem, init=run, steps=10)
    assert further.steps == run.steps + 10
    assert np.linalg.norm(further.weights) > np.linalg.norm(run.weights)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stack_of_an_earlier_version_counts_its_layers_from_0_and_continues(version):
    stack = attsvm.Stack(attsvm.Problem.load(FILES / version / "problem.npz"), layers=2)
    run = attsvm.StackRun.load(FILES / version / "stack.npz")
    counted_from = version in ("0.2.0", "1.0.0")
    with np.load(FILES / version / "stack.npz") as archive:
        for number in (0, 1):
            weights = archive[f"weights/W{counted_from + number}"]
            assert (stack.layer(run, number).weights == weights * np.exp(run.log_scale)).all()
    further = stack.train(init=run, steps=10)
    assert further.step == run.step + 10
    assert np.linalg.norm(further.weights["W0"]) > np.linalg.norm(run.weights["W0"])


@pytest.mark.parametrize("version", [version for version in VERSIONS if (FILES / version / "sweep").exists()])
def test_a_sweep_of_an_earlier_version_opens_and_is_refused_a_continuation(version, tmp_path):
    pytest.importorskip("zarr")
    pytest.importorskip("xarray")
    saved = json.loads((FILES / version / "values.json").read_text(encoding="utf-8"))["sweep"]
    found = attsvm.open_sweep(FILES / version / "sweep")
    assert {key: found[key].values.tolist() for key in saved} == saved
    shutil.copytree(FILES / version / "sweep", tmp_path / "sweep")
    if version != attsvm.__version__ or version == "1.0.0":
        with pytest.raises(ProblemError, match=r"expected .* sweep.*, got .* of attsvm \d\.\d"):
            save_sweep(tmp_path)
    (tmp_path / "sweep" / "data.zarr" / "feasible" / "c" / "0" / "0").write_bytes(b"")
    with pytest.raises(ProblemError, match=r"^[^\n]*sweep[^\n]*$"):
        attsvm.open_sweep(tmp_path / "sweep")
