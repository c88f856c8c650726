"""The public names of attsvm with their signatures, as text: docs/api/public_api.txt.

    PYTHONPATH=tests python -m structure.public_api     # writes the file again; `make api`

The text has names, parameters, their kinds and their defaults. It has no types: docstrings state them, and their text
depends on the versions of Python and of NumPy.
"""

import dataclasses
import enum
import importlib
import inspect
import re
import types
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from attsvm._utils.extensions import Registry

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FILE = DOCS / "api" / "public_api.txt"
METHODS = types.FunctionType | classmethod | staticmethod
PYTHON_IN_DOCS = (
    *(ROOT.glob("README.md"), DOCS.glob("*.md"), DOCS.glob("guide/*.md")),
    *(DOCS.glob("tutorials/*.py"), DOCS.glob("gallery/**/*.py")),
)
IMPORTED = re.compile(r"^ *from (attsvm[\w.]*) import (\w+(?:, \w+)*)", re.MULTILINE)
REGISTRY = re.compile(r"\| `(attsvm[\w.]*)\.([A-Z]+)` \|")  # in the table of docs/guide/extending.md


def public_api() -> str:
    """All of it: a section for each module, one for each registry, and one for the commands."""
    sections = {name: dict(_names(name)) for name in _modules()}
    for name, imported in _imported_by_the_docs():
        known = sections.setdefault(name, {})
        known |= {each: getattr(importlib.import_module(name), each) for each in imported - known.keys()}
    lines: list[str] = []
    homes: dict[type, str] = {}  # where the members of a class are listed: in the first of its modules
    for name, public in sorted(sections.items()):
        for each, value in public.items():
            if inspect.isclass(value):
                homes.setdefault(value, f"{name}.{each}")
    for name, public in sorted(sections.items()):
        lines += ["", f"# {_marked(name, importlib.import_module(name))}", *_section(name, public, homes)]
    return "\n".join([*lines[1:], "", "# command line", *_commands(), ""])


def _modules() -> list[str]:
    """The modules that have an API page, and the modules among their names."""
    pages = {page.stem for page in (DOCS / "api").glob("*.rst")}
    found = sorted("attsvm" if page == "index" else f"attsvm.{page}" for page in pages)
    for name in found:  # which grows
        module = importlib.import_module(name)
        inner = [getattr(module, each) for each in module.__all__]
        found += [each.__name__ for each in inner if inspect.ismodule(each) and each.__name__ not in found]
    return found


def _names(module: str) -> Iterator[tuple[str, Any]]:
    found = importlib.import_module(module)
    return ((name, getattr(found, name)) for name in found.__all__)


def _imported_by_the_docs() -> Iterator[tuple[str, set[str]]]:
    """What an example of the docs imports by name is public, and so are the registries of extensions."""
    for path in (path for paths in PYTHON_IN_DOCS for path in paths):
        text = path.read_text(encoding="utf-8")
        for module, names in [*IMPORTED.findall(text), *REGISTRY.findall(text)]:
            yield module, set(names.split(", "))


def _section(module: str, public: dict[str, Any], homes: dict[type, str]) -> Iterator[str]:
    for name, value in sorted(public.items()):
        if name == "__version__" or inspect.ismodule(value):
            continue
        if isinstance(value, Registry):
            own = [each for each in value.names() if each in value.later or not _is_foreign(value.find(each))]
            marked = [_marked(each, value.find(each)) for each in sorted(own)]
            yield f"{name} of {value.group}: {', '.join(marked)}"
        elif isinstance(value, dict):
            yield f"{name}: {', '.join(sorted(value))}"
        elif inspect.isclass(value) and homes[value] != f"{module}.{name}":
            yield _marked(f"class {name} = {homes[value]}", value)
        elif inspect.isclass(value):
            yield from _class(name, value, homes)
        elif inspect.isroutine(value) or hasattr(value, "__wrapped__"):
            yield _marked(f"{name}{_signature(value)}", value)
        else:
            yield f"{name} = {_text(value)}"


def _class(name: str, value: type, homes: dict[type, str]) -> Iterator[str]:
    """A class, the public classes that it derives from, and the members that it has beside theirs."""
    if issubclass(value, enum.Enum):
        yield f"class {name}: {', '.join(repr(each.value) for each in value)}"
        return
    own = [each for each in value.__mro__ if not _is_foreign(each)]
    made_here = any({"__init__", "__new__"} & vars(each).keys() for each in own)
    signature = _signature(value) if made_here and not getattr(value, "_is_protocol", False) else ""
    bases = [each for each in own[1:] if each in homes]
    errors = [each for each in value.__mro__ if _is_foreign(each) and issubclass(each, Exception)]
    derived = [homes[each] for each in bases] + [each.__name__ for each in errors[:1]]
    bases_listed = f" is {', '.join(derived)}" if derived else ""
    yield _marked(f"class {name}{signature}{bases_listed}", value)
    members: dict[str, str] = {}
    inherited = {each for base in bases for each in base.__mro__}
    for each in (each for each in reversed(own) if each not in inherited):
        fields = {field.name for field in dataclasses.fields(each)} if dataclasses.is_dataclass(each) else set()
        members |= dict.fromkeys([*fields, *inspect.get_annotations(each), *getattr(each, "_fields", ())], "")
        for key, member in vars(each).items():
            if isinstance(member, METHODS) and key not in fields:
                members[key] = _signature(getattr(each, key))
            elif isinstance(member, property | cached_property) or not hasattr(type(member), "__get__"):
                members[key] = ""
    for key, text in sorted(members.items()):
        if not key.startswith("_"):
            yield "    " + _marked(f".{key}{text}", inspect.getattr_static(value, key, None))


def _marked(text: str, value: object) -> str:
    """The text, marked if the docstring says that the name may change in a minor version; a class with its members."""
    own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    return f"provisional {text}" if own and "Provisional" in own else text


def _is_foreign(value: object) -> bool:
    return not str(getattr(value, "__module__", None) or type(value).__module__).startswith("attsvm")


class _Default:
    """A default value that :class:`inspect.Signature` prints as our text."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return _text(self.value)


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [
        each.replace(
            annotation=each.empty, default=each.empty if each.default is each.empty else _Default(each.default)
        )
        for each in signature.parameters.values()
    ]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))


def _text(value: object) -> str:
    """The value, or its type where ``repr`` may differ from one process or version to the next."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, str | int | float | bool | None):
        return repr(value)
    if isinstance(value, tuple) and type(value) is tuple:
        return f"({', '.join(map(_text, value))})"
    if repr(value) == "<factory>":  # of a dataclass
        return "<factory>"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = [getattr(value, field.name) for field in dataclasses.fields(value)]
        return f"{type(value).__name__}({', '.join(map(_text, given))})"
    name = getattr(value, "__qualname__", None)
    return name if isinstance(name, str) else f"<{type(value).__name__}>"


def _commands() -> Iterator[str]:
    """Each command with its arguments and options."""
    from attsvm.cli import COMMANDS, load_command

    for name in COMMANDS:
        command = load_command(name)
        parameters = command.params
        arguments = [(each.metavar or each.name).upper() for each in parameters if each.param_type_name == "argument"]
        options = sorted(
            name
            for each in parameters
            if each.param_type_name == "option"
            for name in [*each.opts, *each.secondary_opts]
        )
        marker = ["provisional"] if "Provisional" in (command.help or "") else []
        yield " ".join([*marker, "attsvm", name, *arguments, *options])


if __name__ == "__main__":
    FILE.write_text(public_api(), encoding="utf-8")
