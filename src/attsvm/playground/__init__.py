"""The built page of the playground. Its source is ``playground/`` in the repository; ``make playground`` builds it."""

from importlib.resources import files

# for the other packages of attsvm; there are no public names
__door__ = ("page",)


def page() -> str:
    """The page, one HTML file that needs no other.

    Examples
    --------
    >>> from attsvm.playground import page
    >>> page()[:15]
    '<!doctype html>'
    """
    return files(__package__).joinpath("page", "index.html").read_text(encoding="utf-8")
