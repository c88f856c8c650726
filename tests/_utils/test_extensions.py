"""How an extension is found by its name: built in, installed, or by import path, and what is said where it is not."""

import importlib
import sys
import textwrap
import threading

import numpy as np
import pytest

from attsvm import fit, margin, regularization_path, solve_svm, train
from attsvm._utils.extensions import FOLDERS, Registry, import_object
from attsvm.cli import optimizer_help
from attsvm.datasets import SOURCES, find_source, random_problem, source_help
from attsvm.errors import ProblemError
from attsvm.heads import parse_head
from attsvm.losses import parse_loss
from attsvm.norms import parse_norm
from attsvm.norms.registry import NORMS
from attsvm.optimizers import OPTIMIZERS, parse_optimizer
from attsvm.profiles import margin_profile


class Shape:
    sides = 3


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: parse_norm("operator"), "spectral"),
        (lambda: parse_norm("nuc"), "nuclear"),
        (lambda: parse_norm("F"), "frobenius"),
        (lambda: parse_norm("max"), "linf"),
        (lambda: parse_norm("frobenious"), "frobenius"),
        (lambda: parse_norm("Nuclaer"), "nuclear"),
        (lambda: parse_optimizer("adamm"), "adam"),
        (lambda: parse_optimizer("normalised_gradient_descent"), "normalized_gradient_descent"),
        (lambda: parse_head("quadratik"), "quadratic"),
        (lambda: parse_loss("logisitc", None), "logistic"),
        (lambda: find_source("digit"), "digits"),
        (lambda: margin_profile("muoon"), "muon"),
    ],
)
def test_a_name_that_is_not_known_is_answered_by_the_one_spelled_most_alike(call, meant):
    with pytest.raises(ProblemError, match=rf", got '[^']*'; did you mean {meant}\?( The names are .*)?$"):
        call()


def test_no_name_is_guessed_where_none_is_alike():
    with pytest.raises(ProblemError, match=r"got 'hello'\. The names are "):
        parse_norm("hello")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder on ``sys.path``; what is imported from it is forgotten after the test."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    # other modules stay: a second copy of their classes would not be equal to the first
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def built_in():
    """What is built in is imported; placed before ``folder``, it stays imported after the test."""
    for registry in (NORMS, SOURCES, OPTIMIZERS):
        registry.names()


def write(folder, **modules):
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(source))
    importlib.invalidate_caches()


def write_package(folder, name, **modules):
    """A package with a registry of its own."""
    (folder / name).mkdir()
    write(folder / name, __init__=f"from test_extensions import shapes\nSHAPES = shapes({name!r})\n", **modules)


def install(folder, package, groups=("tests.shapes",), **points):
    """What an installed distribution leaves: its name and its entry points, in each of the groups."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "\n".join(f"{name} = {path}" for name, path in points.items())
    (info / "entry_points.txt").write_text("".join(f"[{group}]\n{lines}\n" for group in groups))
    importlib.invalidate_caches()


def _shape(found):
    if isinstance(found, Shape):
        return found
    raise ProblemError(f"expected a Shape, got {type(found).__name__}")


def shapes(package="attsvm.errors"):
    return Registry("shape", group="tests.shapes", package=package, check=_shape)


REGISTERING = """
    from {package} import SHAPES
    from test_extensions import Shape
    class {name}(Shape): ...
    SHAPES.register("{name}", {name}())
"""


def test_modules_of_the_package_register_themselves_on_first_use(folder):
    write_package(folder, "polygons", square=REGISTERING.format(package="polygons", name="square"))
    package = importlib.import_module("polygons")
    assert "polygons.square" not in sys.modules
    assert package.SHAPES.names() == ["square"]
    assert "square" in package.SHAPES
    assert "circle" not in package.SHAPES
    assert [shape.sides for shape in package.SHAPES] == [3]


def test_every_thread_sees_all_that_is_built_in(folder):
    slow = "import time; time.sleep(0.1)\n" + textwrap.dedent(REGISTERING.format(package="slowly", name="square"))
    write_package(folder, "slowly", square=slow)
    registry = importlib.import_module("slowly").SHAPES
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(registry.names())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [["square"]] * 4


def test_a_built_in_module_that_fails_is_reported_every_time(folder):
    write_package(folder, "broken", first="raise RuntimeError('no licence')\n")
    registry = importlib.import_module("broken").SHAPES
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no licence"):
            registry.names()


def test_an_installed_package_adds_a_name(folder):
    write(folder, installed="from test_extensions import Shape\nhexagon = Shape()\nnumber = 6\n")
    install(folder, "more-shapes", hexagon="installed:hexagon", six="installed:number", lost="absent:shape")
    registry = shapes()
    registry.register("square", square := Shape())
    assert registry.names() == ["square", "hexagon", "six", "lost"]
    assert "installed" not in sys.modules  # names alone import nothing
    assert registry.find("hexagon") is sys.modules["installed"].hexagon
    with pytest.raises(ProblemError, match=r"^shape: six: expected a Shape, got int$"):
        registry.find("six")
    with pytest.raises(ProblemError, match=r"^shape: 'lost' cannot be imported \(ModuleNotFoundError: .*absent"):
        registry.find("lost")
    assert registry.find("square") is square


def test_iterating_leaves_out_what_cannot_be_imported_with_one_warning(folder):
    write(folder, installed="from test_extensions import Shape\nhexagon = Shape()\n", failing="1 / 0\n")
    install(folder, "more-shapes", lost="failing:shape", hexagon="installed:hexagon")
    registry = shapes()
    registry.register("square", square := Shape())
    with pytest.warns(RuntimeWarning, match="^shape: 'lost' cannot be imported .*ZeroDivisionError") as caught:
        both = list(registry), dict(registry.items())
    assert both == ([square, sys.modules["installed"].hexagon], {"square": square, "hexagon": both[0][1]})
    assert len(caught) == 1
    with pytest.raises(ProblemError, match=r"^shape: 'lost' cannot be imported"):
        registry.find("lost")


@pytest.mark.filterwarnings("ignore:.*it is left out")
def test_a_broken_installed_package_disturbs_no_other_name(built_in, folder):
    write(folder, failing="1 / 0\n")
    install(folder, "broken", [f"attsvm.{kind}" for kind in ("norms", "datasets", "optimizers")], broken="failing:one")

    assert parse_norm("l1.75").name == parse_norm(1.75).name
    with pytest.raises(ProblemError, match=r"^norm: 'broken' cannot be imported"):
        parse_norm("broken")
    with pytest.raises(ProblemError, match=r"^norm: expected .*, got 'unknown'"):
        parse_norm("unknown")
    assert "a file `.npz`" in source_help()
    with pytest.raises(ProblemError, match=r"^source: expected .*, got 'problem\.unknown'"):
        find_source("problem.unknown")
    assert "`mirror_descent`" in optimizer_help()


def test_what_is_built_in_comes_before_what_is_installed(folder):
    write(folder, installed="from test_extensions import Shape\nsquare = Shape()\n")
    install(folder, "more-shapes", square="installed:square")
    registry = shapes()
    registry.register("square", square := Shape())
    assert registry.names() == ["square"]
    assert registry.find("square") is square


def test_two_packages_with_one_name_are_both_named(folder):
    write(folder, installed="from test_extensions import Shape\nsquare = Shape()\n")
    install(folder, "more-shapes", square="installed:square")
    install(folder, "other-shapes", square="installed:square")
    with pytest.raises(ProblemError, match=r"^shape: the name 'square' .*: more-shapes, other-shapes$"):
        shapes().find("square")


def test_an_import_path_reaches_into_the_current_folder(tmp_path, folder, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    write(
        here,
        neighbor="SIDES = 5\n",
        mine="import neighbor\nfrom test_extensions import Shape\nclass Set:\n    shape = Shape()\n",
    )
    monkeypatch.chdir(here)
    path = list(sys.path)
    assert shapes().find("mine:Set.shape") is sys.modules["mine"].Set.shape
    assert sys.modules["mine"].neighbor.SIDES == 5
    assert sys.path == path
    assert str(here) in FOLDERS  # where worker processes find the module


def test_the_current_folder_hides_no_installed_module(tmp_path, folder, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    write(here, twice="where = 'here'\n")
    write(folder, twice="where = 'installed'\n")
    monkeypatch.chdir(here)
    assert import_object("twice:where") == "installed"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("absent:shape", r"^shape: 'absent:shape' cannot be imported \(ModuleNotFoundError: .*absent"),
        ("written:triangle", r"^shape: 'written:triangle' cannot be imported \(AttributeError: .*triangle"),
        ("written:number", "^shape: written:number: expected a Shape, got int$"),
        ("failing:shape", r"^shape: 'failing:shape' cannot be imported \(ZeroDivisionError: "),
        ("circle", r"^shape: expected a name or package\.module:name, got 'circle'\. The names are square$"),
        ("./written.py:shape", r"^shape: .* \(ValueError: expected a module in place of a file: written:shape, in"),
        (":shape", "^shape: ':shape' cannot be imported"),
        ("written:", "^shape: 'written:' cannot be imported"),
    ],
)
def test_what_cannot_be_found_is_named(path, message, folder):
    write(folder, written="number = 6\n", failing="1 / 0\n")
    registry = shapes()
    registry.register("square", Shape())
    with pytest.raises(ProblemError, match=message):
        registry.find(path)


FORGETFUL = """
    from dataclasses import dataclass
    import jax.numpy as jnp, numpy as np
    from attsvm.datasets import Source
    from attsvm.heads import Head
    from attsvm.losses import Loss
    from attsvm.norms import Norm
    def nothing(m=0): ...
    LOSS = Loss(lambda m: jnp.exp(-m), nothing, "mine")
    class Reading(Source):
        name = summary = "mine"
        def load(self): ...
    class Values(Head):
        name = "mine"
        def initial(self, problem): ...
        def outputs(self, parameters, pooled): ...
    class Outputs(Values):
        def initial(self, problem): return {"v": problem.head}
    @dataclass(frozen=True)
    class Prox(Norm):
        name = "mine"
        def value(self, x, axes=2): return float(np.linalg.norm(x))
        def prox(self, x, step): ...
    @dataclass(frozen=True)
    class Steepest(Norm):
        name = "mine"
        def value(self, x, axes=2): return float(np.linalg.norm(x))
        def steepest(self, g): ...
"""


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda p: train(p, optimizer="forgetful:nothing"), "^optimizer: forgetful:nothing: .*, got None$"),
        (lambda p: train(p, loss="forgetful:nothing"), "^loss: "),
        (lambda p: train(p, loss="forgetful:LOSS"), "^loss: expected one number per margin"),
        (lambda p: train(p, head="forgetful:Values"), r"^head: expected mine\.initial .*, got None$"),
        (lambda p: train(p, head="forgetful:Outputs"), r"^head: expected an output of shape \(\), got None$"),
        (lambda p: train(p, head="forgetful:nothing"), "^head: forgetful:nothing: expected a Head .*, got function$"),
        (lambda p: parse_norm("forgetful:Prox"), r"^norm: mine\.prox: expected an array .*, got None$"),
        (lambda p: parse_norm("forgetful:Steepest"), r"^norm: mine\.steepest: expected an array .*, got None$"),
        (lambda p: fit("forgetful:Reading"), r"^source: mine\.load: expected a Problem, got NoneType$"),
        (lambda p: margin(p, np.eye(2), [0, 0], norm=True), "^norm: expected .*, got True$"),
        (lambda p: solve_svm(p, [0, 0], callback=3), r"^callback: expected a function of an attsvm\.Progress, got 3$"),
        (lambda p: regularization_path(p, [1.0], callback=3), "^callback: expected a function"),
    ],
)
def test_what_returns_nothing_or_is_no_function_is_refused_by_its_name(folder, use, message):
    write(folder, forgetful=FORGETFUL)
    with pytest.raises(ProblemError, match=message) as raised:
        use(random_problem(2, 2, 2, seed=0))
    assert "\n" not in str(raised.value)


def test_a_name_is_taken_once():
    registry = shapes()
    shape = registry.register("square", Shape())
    assert registry.register("square", shape) is shape
    with pytest.raises(ProblemError, match=r"^shape: the name 'square' is taken$"):
        registry.register("square", Shape())


@pytest.mark.parametrize("registry", [NORMS], ids=lambda registry: registry.group)
def test_whatever_is_known_by_name_is_found(registry):
    assert registry.names()
    for name in registry.names():
        assert registry.find(name) is registry.find(name)


@pytest.mark.parametrize("first", ["a", "c"])
def test_the_order_of_extensions_does_not_depend_on_what_was_imported_first(folder, first):
    write_package(folder, "letters", **{x: REGISTERING.format(package="letters", name=x) for x in "abc"})
    importlib.import_module(f"letters.{first}")
    assert importlib.import_module("letters").SHAPES.names() == ["a", "b", "c"]
