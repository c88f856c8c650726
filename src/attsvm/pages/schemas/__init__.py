"""The fields of every result, and their JSON schemas, which ``python -m attsvm.pages.schemas FOLDER`` writes."""

from attsvm.pages.plain import dumps
from attsvm.pages.schemas import experiment, fit, inspection, papers, problems, sweeps, texts
from attsvm.pages.schemas.model import Result, schema_of

__all__ = ["experiment", "fit", "inspection", "papers", "problems", "schema_files", "sweeps", "texts"]


def schema_files() -> dict[str, str]:
    """The schemas as text, by the names of their files."""
    return {
        f"{name.removeprefix('attsvm.').partition('/')[0].replace('-', '_')}.json": dumps(schema_of(form)) + "\n"
        for name, form in Result.ALL.items()
    }
