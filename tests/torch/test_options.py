"""One declaration of each option: in constructors, groups, loaded states, and before a step."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm.torch import ColumnDescent, MirrorDescent, RowDescent, SignDescent, SpectralDescent  # noqa: E402

INVALID = [
    (MirrorDescent, "normalize", "False"),
    (MirrorDescent, "normalize", 1),
    (MirrorDescent, "maximize", "no"),
    (MirrorDescent, "foreach", "x"),
    (MirrorDescent, "compiled", "yes"),
    (MirrorDescent, "lr", "0.1"),
    (MirrorDescent, "lr", torch.tensor([0.1, 0.2])),
    (MirrorDescent, "momentum", "0.9"),
    (MirrorDescent, "momentum", True),
    (MirrorDescent, "p", "1.5"),
    (MirrorDescent, "scope", None),
    (MirrorDescent, "nonfinite", "ignore"),
    (SignDescent, "nesterov", "no"),
    (SpectralDescent, "iterations", 2.5),
    (SpectralDescent, "iterations", True),
    (SpectralDescent, "coefficients", "abc"),
    (SpectralDescent, "coefficients", (1.0, 2.0)),
    (SpectralDescent, "dtype", "bfloat61"),
    (SpectralDescent, "heads", 1.0),
    (RowDescent, "fused", "x"),
]


def parameter(*shape):
    made = torch.nn.Parameter(torch.ones(shape))
    made.grad = torch.randn(shape)
    return made


def two_groups(optimizer_class, **of_second):
    parameters = [parameter(3, 3), parameter(3, 3)]
    groups = [{"params": [parameters[0]]}, {"params": [parameters[1]], **of_second}]
    return parameters, optimizer_class(groups, lr=0.1)


@pytest.mark.parametrize(("optimizer_class", "name", "value"), INVALID)
def test_a_value_of_another_type_is_refused_wherever_it_is_given(optimizer_class, name, value):
    says = f"^{name}: expected "
    with pytest.raises(ValueError, match=says):
        optimizer_class([parameter(3, 3)], **{"lr": 0.1, name: value})
    with pytest.raises(ValueError, match=says):
        two_groups(optimizer_class, **{name: value})
    # in a loaded state, and between two steps: nothing moves
    parameters, optimizer = two_groups(optimizer_class)
    optimizer.step()
    before, options = [x.detach().clone() for x in parameters], copy.deepcopy(optimizer.param_groups[1])
    state = optimizer.state_dict()
    state["param_groups"][1] = {**state["param_groups"][1], name: value}
    with pytest.raises(ValueError, match=says):
        optimizer.load_state_dict(state)
    assert {**optimizer.param_groups[1], "params": None} == {**options, "params": None}
    optimizer.param_groups[1][name] = value
    with pytest.raises(ValueError, match=says):
        optimizer.step()
    assert all(torch.equal(x, y) for x, y in zip(parameters, before, strict=True))


@pytest.mark.parametrize("name", ["normalise", "P", "betas", "eps"])
def test_unknown_names_are_refused_in_groups_and_labels_are_not(name):
    with pytest.raises(TypeError, match=f"expected options among lr, p, .*, got {name}"):
        two_groups(MirrorDescent, **{name: 3.0})
    with pytest.raises(TypeError, match="got lr_mult; a label of a group begins with an underscore"):
        two_groups(MirrorDescent, lr_mult=3.0)
    with pytest.raises(TypeError, match="got name"):
        MirrorDescent([parameter(2)], lr=0.1, name="x")
    labels = {"name": "head", "lr_scale": 0.5, "initial_lr": 0.1, "_layer": 3}
    _, optimizer = two_groups(MirrorDescent, **labels)
    assert optimizer.param_groups[1].items() >= labels.items()


def test_names_of_types_and_lists_are_read():
    _, optimizer = two_groups(SpectralDescent, iterations=5, dtype="bfloat16", coefficients=[2, -1.5, 0.5])
    assert optimizer.param_groups[1]["dtype"] is torch.bfloat16
    assert optimizer.param_groups[1]["coefficients"] == (2, -1.5, 0.5)
    optimizer.step()


FOREIGN = {
    "Adam": lambda params: torch.optim.Adam(params, lr=0.1),
    "SGD": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "MirrorDescent": lambda params: MirrorDescent(params, lr=0.1, momentum=0.9),
    "SignDescent": lambda params: SignDescent(params, lr=0.1),
    "SpectralDescent": lambda params: SpectralDescent(params, lr=0.1),
    "RowDescent": lambda params: RowDescent(params, lr=0.1),
}


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("optimizer_class", [MirrorDescent, SignDescent, SpectralDescent, ColumnDescent])
def test_a_state_of_another_optimizer_is_refused(optimizer_class, foreign):
    if foreign == optimizer_class.__name__ or (foreign, optimizer_class) == ("RowDescent", ColumnDescent):
        return  # rows and columns have the same options and state
    weights = parameter(3, 3)
    other = FOREIGN[foreign]([weights])
    other.step()
    optimizer = optimizer_class([weights], lr=0.5)
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(ValueError, match=f"state_dict: expected one of {optimizer_class.__name__}, got "):
        optimizer.load_state_dict(other.state_dict())
    assert optimizer.state_dict() == before


def test_a_state_of_another_model_is_refused():
    large, small = parameter(3, 4), parameter(3, 3)
    other, optimizer = MirrorDescent([large], lr=0.1), MirrorDescent([small], lr=0.1)
    other.step()
    with pytest.raises(ValueError, match=r"mirror of the shape of its parameter, \(3, 3\), got \(3, 4\)"):
        optimizer.load_state_dict(other.state_dict())
    assert not optimizer.state
