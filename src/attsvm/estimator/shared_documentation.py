"""Parameters and attributes that estimators share are described once, by the class that has them."""

import inspect
import re
import textwrap
from collections.abc import Callable
from typing import TypeVar

Class = TypeVar("Class", bound=type)

PLACE = re.compile(r"^\{(parameters|attributes) of (\w+)\}\n", re.MULTILINE)
"""The line of a docstring where this section of a base class is inserted."""


def document(**words: str | float) -> Callable[[Class], Class]:
    """Insert the parameters and attributes of base classes into the docstring of a class.

    They take the place of the lines ``{parameters of BaseClass}`` and the like, so ``help()`` and Sphinx show them.
    ``words`` are put where the estimators differ.
    """
    indented = {name: textwrap.indent(str(text), "    ").lstrip() for name, text in words.items()}

    def insert(documented: Class) -> Class:
        docstrings = {base.__name__: inspect.cleandoc(base.__doc__ or "") for base in documented.__mro__[1:]}

        def section(place: re.Match[str]) -> str:
            title = place[1].capitalize()
            _, _, text = docstrings[place[2]].partition(f"{title}\n{'-' * len(title)}\n")
            return text.partition("\n\n")[0].format(**indented) + "\n"

        if documented.__doc__:  # None with `python -OO`
            documented.__doc__ = PLACE.sub(section, inspect.cleandoc(documented.__doc__))
        return documented

    return insert
