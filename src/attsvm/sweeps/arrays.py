"""The arrays of a sweep's store: a zarr group with the coordinates of the grid, and an empty array for each output."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.measure import Output

DONE = "done"
"""The array that says which trials are committed."""


def create_group(folder: Path, definition: Definition, header: Mapping[str, Any]) -> None:
    """Create the coordinates, the attributes, and the arrays of all outputs that are declared."""
    import xarray as xr

    axes = dict(definition.grid)
    for output in definition.declared.values():
        axes |= output.axes
    coordinates = {name: (name, coordinate(values), label(name)) for name, values in axes.items()}
    attributes = {**header, "definition": json.dumps(header["definition"])}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr's, that the format of strings may change
        xr.Dataset(coords=coordinates, attrs=attributes).to_zarr(folder, mode="w", zarr_format=3, consolidated=False)
    for name, output in definition.declared.items():
        create_array(folder, name, output, definition, header["chunk"])
    _create(folder, DONE, definition, header["chunk"], dtype="bool", fill_value=False)


def create_array(folder: Path, name: str, output: Output, definition: Definition, chunk: int) -> None:
    """Create the array of an output, which is missing everywhere."""
    _create(
        folder,
        name,
        definition,
        chunk,
        {axis: len(values) for axis, values in output.axes.items()},
        dtype=output.dtype,
        fill_value=output.missing,
        attributes=output.attributes(name),
    )


def _create(
    folder: Path, name: str, definition: Definition, chunk: int, axes: Mapping[str, int] | None = None, **options: Any
) -> None:
    """Create an array whose files are the chunks of the sweep. Each file has a checksum, which zarr compares."""
    import zarr
    from zarr.codecs import Crc32cCodec, ZstdCodec

    axes = axes or {}
    zarr.open_group(folder, mode="r+").create_array(
        name,
        shape=(*definition.shape, definition.trials, *axes.values()),
        chunks=(*(1,) * len(definition.shape), min(chunk, definition.trials), *axes.values()),
        dimension_names=(*definition.grid, "trial", *axes),
        compressors=[ZstdCodec(), Crc32cCodec()],
        **options,
    )


def label(name: str) -> dict[str, str]:
    """The attributes of a coordinate."""
    return {"long_name": name.rpartition(".")[2].replace("_", " "), "units": ""}


def coordinate(values: Any) -> np.ndarray:
    """The values of a grid as numbers, or as strings."""
    numbers = [plain(value) for value in values]
    if all(isinstance(value, int) and not isinstance(value, bool) for value in numbers):
        return np.array(numbers, np.int64)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in numbers):
        return np.array(numbers, np.float64)
    texts = [str(value) for value in numbers]
    if len(set(texts)) < len(texts):  # optimisers of one name
        texts = [str(value) for value in values]
    if len(set(texts)) < len(texts):
        raise ProblemError(f"grid: expected values of different names, got {', '.join(texts)}")
    return np.array(texts)


def plain(value: Any) -> Any:
    """A value as JSON: a number, or a name."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, bool | int | float | str) else str(getattr(value, "name", value))
