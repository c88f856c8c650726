"""Errors name an argument of Python as it is written on the command line: ``--label`` for ``labels``."""

import re
from collections.abc import Mapping
from inspect import Parameter
from typing import Any

from typer.models import OptionInfo

from attsvm._utils.files import is_table_file

ARRAYS = (".npz", ".json")
"""Files of arrays, which have names of their own."""

_BEGIN = re.compile(r"(?P<file>.+?: )?(?P<names>[A-Za-z_]+(?:, [a-z_]+)*)(?=: expected )")


def as_written(message: str, parameters: Mapping[str, Parameter], values: Mapping[str, Any]) -> str:
    """The message of an error, whose first words are the options of a command that have these names.

    Behind the name of a table file, arguments are those of its columns. The arrays of other files have their own names,
    and so do labels of such a file.

    ``parameters``: of the command, by the names that errors have for them. ``values``: of the parameters, by their own
    names. The name of an argument without an option becomes its value, such as a file.
    """
    begin = _BEGIN.match(message)
    if begin is None or not (begin["file"] is None or is_table_file(begin["file"].removesuffix(": "))):
        return message
    names = begin["names"].split(", ")
    if not all(name in parameters for name in names):
        return message
    given = {name: values[parameters[name].name] for name in names}
    of_arrays = any(str(value).lower().endswith(ARRAYS) for value in values.values())
    if of_arrays and all(value is None and parameters[name].name != name for name, value in given.items()):
        return message
    written = [_written(parameters[name], value) for name, value in given.items()]
    return f"{begin['file'] or ''}{', '.join(written)}{message[begin.end() :]}"


def _written(parameter: Parameter, value: Any) -> str:
    kind = parameter.annotation.__metadata__[0]
    if not isinstance(kind, OptionInfo):
        return str(value)
    # Typer takes the first name for the default of an annotation, until it makes the command
    declared = (one for one in (kind.default, *(kind.param_decls or ())) if str(one).startswith("--"))
    on, _, off = str(next(declared, f"--{parameter.name.replace('_', '-')}")).partition("/")
    return off if off and value is False else on
