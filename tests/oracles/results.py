"""Whether two results are the same, field by field."""

from dataclasses import fields

import numpy as np

from attsvm.results import Batched, role_of


def assert_same(found, expected):
    """Two values are equal and of one type; fields of results that no file holds are left out."""
    assert type(found) is type(expected)
    if isinstance(expected, Batched):
        for field in fields(expected):
            if role_of(field) != "unsaved":
                assert_same(getattr(found, field.name), getattr(expected, field.name))
        assert repr(found) == repr(expected)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, list | tuple):
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, np.ndarray | float):
        np.testing.assert_array_equal(found, expected)
    else:
        assert found == expected


def assert_survives_a_file(result, folder):
    """The result that is read from a file is the one that was written to it; returns it."""
    result.save(folder / "result.npz")
    read = type(result).load(folder / "result.npz")
    assert_same(read, result)
    return read
