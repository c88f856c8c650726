"""The fields of every result, and their JSON schemas, which ``python -m attsvm.pages.schemas FOLDER`` writes."""

import importlib
import pkgutil

from attsvm.pages.plain import dumps
from attsvm.pages.schemas.model import CommandResult, schema_of


def schema_files() -> dict[str, str]:
    """The schemas as text, by the names of their files."""
    for module in pkgutil.iter_modules(__path__):
        if module.name != "__main__":
            importlib.import_module(f"{__name__}.{module.name}")
    return {
        f"{form.SCHEMA.removeprefix('attsvm.').partition('/')[0].replace('-', '_')}.json": dumps(schema_of(form)) + "\n"
        for form in CommandResult.__subclasses__()
    }
