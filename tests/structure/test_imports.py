"""The layers of ``CONTRIBUTING.md``: no module imports from a later one, and there are no cycles."""

import ast
from collections import defaultdict

import pytest

from structure import imports
from structure.imports import cycle, layers, modules, optional_dependencies

LAYER, GROUP = layers()
IMPORTS = imports.all_imports()
INTERNAL = [each for each in IMPORTS if each.target.split(".")[0] == "attsvm"]
EXTERNAL = [each for each in IMPORTS if each.target.split(".")[0] != "attsvm"]
COMMAND_LINE = {"cli", "__main__"}
DRAWING = {"matplotlib", "mpl_toolkits", "typer", "rich"}
OF_TORCH = {"torch", "transformers", "tokenizers", "safetensors", "accelerate", "lightning", "tensorboard"}


def package(module):
    """The part of ``attsvm`` that a module belongs to; "" for attsvm itself."""
    return [*module.split("."), ""][1]


def layer(module):
    """Its place in the table; ``attsvm`` itself stands above all: it lists names of every package."""
    name = package(module)
    return max(LAYER.values()) + (name in ("", "__main__")) if name in COMMAND_LINE | {""} else LAYER[name]


def test_every_package_has_a_layer():
    packages = {package(module) for module in modules()} - {"", "__main__"}
    assert packages == set(LAYER)


def names_the_type_of_a_result(each):
    """A page is made from a result, and a fit makes its page: the page names the type, and imports nothing of it."""
    return each.for_types and package(each.module) == "pages" and package(each.target) in ("_fit", "papers")


def test_no_module_imports_from_a_later_layer():
    later = [each for each in INTERNAL if layer(each.target) > layer(each.module)]
    assert not [str(each) for each in later if not names_the_type_of_a_result(each)]


def test_groups_of_one_layer_do_not_import_each_other():
    found = [
        str(each)
        for each in INTERNAL
        if layer(each.target) == layer(each.module)
        and package(each.module) in GROUP
        and GROUP[package(each.module)] != GROUP[package(each.target)]
    ]
    assert not found


def test_there_are_no_cycles():
    edges = defaultdict(set)
    for each in INTERNAL:
        if not names_the_type_of_a_result(each):
            edges[each.module].add(each.target)
    assert not cycle(edges)


def test_solvers_and_training_do_not_import_each_other():
    apart = {"svm", "training"}
    assert not [str(each) for each in INTERNAL if {package(each.module), package(each.target)} == apart]


def test_the_torch_package_needs_no_jax():
    inside = [each for each in IMPORTS if package(each.module) in ("torch", "inspect")]
    refused = {"training", "optimizers"}
    assert not [str(each) for each in inside if each.target in ("jax", "optax") or package(each.target) in refused]


def test_pytorch_is_imported_by_its_own_package_and_those_above_it():
    below = [each for each in EXTERNAL if each.target in OF_TORCH and layer(each.module) < LAYER["torch"]]
    found = [each for each in below if each.module not in ("attsvm._utils.devices", "attsvm._utils.memory")]
    assert not [str(each) for each in found]


def test_plots_and_the_command_line_stay_out_of_the_library():
    allowed = {"_utils", "plot", "pages", "_fit", "papers", "cli"}
    assert not [str(each) for each in EXTERNAL if each.target in DRAWING and package(each.module) not in allowed]


def test_imports_in_functions_are_optional_dependencies_or_in_commands():
    optional = optional_dependencies()
    found = [each for each in IMPORTS if each.in_function and package(each.module) not in COMMAND_LINE]
    assert not [str(each) for each in found if each.target not in optional]


def test_an_optional_dependency_is_imported_where_it_is_needed():
    """Four packages are there for it; every other module imports it in a function."""
    top = [each for each in EXTERNAL if not each.in_function and not each.for_types]
    free = ("attsvm.torch", "attsvm.inspect", "attsvm.papers.experiments")
    found = [each for each in top if each.target in optional_dependencies() and not each.module.startswith(free)]
    assert not [str(each) for each in found]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import attsvm.svm", {"attsvm.svm"}),
        ("from attsvm.svm import solve, solve_svm", {"attsvm.svm.solve", "attsvm.svm"}),
        ("from . import prediction_head", {"attsvm.svm.variants.prediction_head"}),
        ("from .. import solve_svm", {"attsvm.svm"}),
        ("def f():\n    from ..solve import solve_svm", {"attsvm.svm.solve"}),
        ("if TYPE_CHECKING:\n    import jax.numpy", {"jax"}),
    ],
)
def test_the_reader_of_imports(source, expected):
    known = modules()
    nodes = imports._statements(ast.parse(source), False, False)
    found = {target for node, _, _ in nodes for target, _ in imports._targets(node, "attsvm.svm.variants", known)}
    assert found == expected


def test_the_finder_of_cycles():
    assert set(cycle({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "e": {"a"}})) == {"b", "c"}
    assert set(cycle({"a": {"b"}, "d": {"d"}})) == {"d"}
    assert cycle({"a": {"b", "c"}, "b": {"c"}}) == []
