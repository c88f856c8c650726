"""The schemas of results: there is one for each command with ``--json``, and it is strict."""

import copy

import pytest
from jsonschema import Draft202012Validator, ValidationError

import attsvm
from attsvm.cli import COMMANDS, attribute_of, load_command
from attsvm.pages import make_page
from attsvm.pages.schemas import schema_files
from attsvm.pages.schemas.bags import MemberFields
from oracles.schemas import SCHEMAS, all_schemas, check_result


def test_every_command_with_json_has_a_schema_and_every_schema_is_valid():
    with_json = {name for name in COMMANDS if any("--json" in option.opts for option in load_command(name).params)}
    # each figure of `reproduce` is a file of its own; `reproduce --list`, `fit` of bags and `predict` of numbers differ
    others = {"figures", "figure_list", "fit_bags", "predict_numbers"}
    assert set(all_schemas()) == {attribute_of(name) for name in with_json} | others
    for name, schema in all_schemas().items():
        Draft202012Validator.check_schema(schema)
        assert schema["title"] == schema["properties"]["schema"]["const"]
        assert schema["title"].replace("-", "_").startswith(f"attsvm.{name}/")
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) >= {"schema", "version", "command"}


@pytest.mark.parametrize("change", ["renamed", "missing", "added", "another type"])
def test_a_result_that_changes_a_field_is_refused(change):
    problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
    result = make_page(solution, problem=problem, source="problem.npz", command="attsvm solve").numbers
    check_result(result)
    changed = copy.deepcopy(result)
    if change in ("renamed", "missing"):
        changed["data"].pop("sha256")
    if change in ("renamed", "added"):
        changed["data"]["sha"] = "0"
    if change == "another type":
        changed["gap"] = "small"
    with pytest.raises(ValidationError):
        check_result(changed)


def test_the_files_are_those_of_the_model():
    """``make schemas`` writes them."""
    assert {path.name: path.read_text(encoding="utf-8") for path in SCHEMAS.glob("*.json")} == schema_files()


def test_a_given_value_without_a_field_is_an_error():
    with pytest.raises(TypeError, match="MemberFields has no field part; add a line to its class"):
        MemberFields.fill({"name": "mean", "share": 1.0}, part=0.5)


def test_every_field_has_a_description():
    def fields(node, place):
        for name, field in node.get("properties", {}).items():
            yield f"{place}.{name}", field
            yield from fields(field, f"{place}.{name}")
        for key in ("items", "additionalProperties"):
            if isinstance(node.get(key), dict):
                yield from fields(node[key], f"{place}[]")

    found = [one for name, schema in all_schemas().items() for one in fields(schema, name)]
    assert [place for place, field in found if not field["description"]] == []
