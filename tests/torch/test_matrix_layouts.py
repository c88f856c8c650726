"""What is one matrix: blocks, leading axes and factors, each against the polar factor of every block by itself."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm.torch import ColumnDescent, RowDescent, SpectralDescent  # noqa: E402


def polar(matrix):
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return left @ right


def step(gradient, optimizer=SpectralDescent, **options):
    parameter = torch.nn.Parameter(torch.zeros(gradient.shape, dtype=torch.float64))
    parameter.grad = torch.tensor(gradient)
    exact = {"iterations": None} if optimizer is SpectralDescent else {}
    optimizer([parameter], lr=1.0, **exact, **options).step()
    return -parameter.detach().numpy()


def of_blocks(matrix, rows):
    return np.concatenate([polar(x) for x in np.split(matrix, np.cumsum(rows)[:-1])])


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"heads": 4}, [3] * 4),
        ({"heads": (2, 1, 1)}, [3] * 4),
        ({"blocks": (6, 3, 3)}, [6, 3, 3]),
        ({"blocks": [2, 2, 5, 2, 1]}, [2, 2, 5, 2, 1]),
        ({"fused": True}, [12]),
    ],
    ids=str,
)
def test_each_block_of_rows_is_a_matrix_in_every_batch_and_orientation(options, rows):
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((12, 5))
    wanted = of_blocks(matrix, rows)
    np.testing.assert_allclose(step(matrix, **options), wanted, atol=1e-12)
    np.testing.assert_allclose(step(matrix.T.copy(), transposed=True, **options), wanted.T, atol=1e-12)
    if "fused" not in options:
        experts = rng.standard_normal((2, 3, 12, 5))
        wanted = np.stack([[of_blocks(x, rows) for x in layer] for layer in experts])
        np.testing.assert_allclose(step(experts, flatten=False, **options), wanted, atol=1e-12)


def test_convolutions_and_heads_side_by_side_are_one_matrix():
    kernel = np.random.default_rng(1).standard_normal((6, 2, 3, 3))
    np.testing.assert_allclose(
        step(kernel, flatten=True), polar(kernel.reshape(6, 18)).reshape(kernel.shape), atol=1e-12
    )
    keys = np.random.default_rng(2).standard_normal((3, 7, 2))
    beside = polar(np.concatenate(list(keys), axis=1))
    np.testing.assert_allclose(step(keys, fused=True), np.stack(np.split(beside, 3, axis=1)), atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "options", "says"),
    [
        ((6, 2, 3, 3), {}, r"12 matrices of shape \(3, 3\). For a convolution pass flatten=True"),
        ((4, 8, 20), {"heads": 4}, "each of 4 heads. If its first axis is the attention heads, pass heads=1"),
    ],
)
def test_shapes_that_may_be_meant_in_another_way_are_reported(shape, options, says, recwarn):
    parameter = torch.nn.Parameter(torch.zeros(shape))
    with pytest.warns(UserWarning, match=says) as caught:
        SpectralDescent([parameter], lr=0.1, **options)
    assert caught[0].filename == __file__
    recwarn.clear()
    SpectralDescent([parameter], lr=0.1, flatten=False, **options)
    SpectralDescent([{"params": [parameter], "adamw": True}], lr=0.1)
    assert not recwarn.list


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"heads": (2, 1)}, r"heads: expected a divisor of the 10 rows of a matrix, got \(2, 1\)"),
        ({"heads": (2, 0)}, "heads: expected an integer >= 1 or a tuple"),
        ({"blocks": (4, 4)}, r"blocks: expected rows that add up to 10, got \(4, 4\), for a parameter of shape"),
        ({"blocks": (5, 5), "heads": 2}, "blocks: expected None with heads"),
        ({"heads": 2, "fused": True}, "fused: expected heads=1, as it joins all heads to one matrix, got heads=2"),
        ({"scale": "rms"}, "scale: expected one of None, 'match_rms', 'muon'"),
        ({"scale": "muon", "normalize": False}, "scale: expected None with normalize=False"),
        ({"transposed": True, "heads": 5}, "heads: expected a divisor of the 4 rows"),
    ],
)
def test_layouts_that_do_not_fit_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        SpectralDescent([torch.nn.Parameter(torch.zeros(10, 4))], lr=0.1, **options)


@pytest.mark.parametrize(("scale", "adjust"), [("muon", "original"), ("match_rms", "match_rms_adamw")])
@pytest.mark.parametrize("shape", [(8, 8), (6, 20), (20, 6)])
def test_scaled_steps_are_those_of_muon(scale, adjust, shape):
    weights, gradients = torch.randn(shape), torch.randn(3, *shape)
    made = []
    for make in (
        lambda x: torch.optim.Muon(x, lr=0.1, weight_decay=0.3, adjust_lr_fn=adjust),
        lambda x: SpectralDescent(
            x, lr=0.1, weight_decay=0.3, momentum=0.95, nesterov=True, scale=scale, dtype=torch.bfloat16
        ),
    ):
        parameter = torch.nn.Parameter(weights.clone())
        optimizer = make([parameter])
        for gradient in gradients:
            parameter.grad = gradient.clone()
            optimizer.step()
        made.append(parameter.detach())
    # both round to bfloat16 five times a step
    assert (made[1] - made[0]).norm() < 0.02 * (made[0] - weights).norm()


@pytest.mark.parametrize("optimizer", [SpectralDescent, RowDescent, ColumnDescent])
@pytest.mark.parametrize("options", [{}, {"heads": 3}, {"blocks": (4, 2)}], ids=str)
def test_matched_steps_have_a_root_mean_square_of_a_fifth_of_lr(optimizer, options):
    made = step(np.random.default_rng(4).standard_normal((6, 9)), optimizer, scale="match_rms", **options)
    for block in np.split(made, {"heads": 3}.get(next(iter(options), ""), [4]) if options else 1):
        assert np.sqrt(np.mean(block**2)) == pytest.approx(0.2, rel=1e-9)


def test_a_state_of_1_0_goes_on_as_it_was():
    rng = np.random.default_rng(5)
    for shape, heads, wanted in (
        ((3, 5, 2), 3, lambda g: np.stack([polar(x) for x in g])),  # the first axis were the heads
        ((6, 2, 3), 2, lambda g: of_blocks(g.reshape(6, 6), [3, 3]).reshape(g.shape)),
        ((6, 4), 2, lambda g: of_blocks(g, [3, 3])),
        ((6, 4), (2, "fused"), polar),  # fused decided
    ):
        parameter = torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64))
        optimizer = SpectralDescent([parameter], lr=9.0, flatten=False)
        saved = optimizer.state_dict()
        new = ("scale", "blocks", "flatten", "transposed", "adamw", "betas", "eps")
        group = {name: x for name, x in saved["param_groups"][0].items() if name not in new}
        heads, *fused = heads if isinstance(heads, tuple) else (heads,)
        group |= {"lr": 1.0, "heads": heads, "fused": bool(fused), "iterations": None, "dtype": None}
        optimizer.load_state_dict({**saved, "param_groups": [group]})
        gradient = rng.standard_normal(shape)
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        np.testing.assert_allclose(-parameter.detach().numpy(), wanted(gradient), atol=1e-12)


@pytest.mark.parametrize("optimizer", [SpectralDescent, RowDescent, ColumnDescent])
def test_steps_of_vectors_are_as_long_as_those_of_adam(optimizer):
    made = step(np.random.default_rng(5).standard_normal(64), optimizer, scale="match_rms")
    assert np.sqrt(np.mean(np.square(made))) == pytest.approx(0.2, rel=1e-6)
