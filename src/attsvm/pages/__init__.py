"""Results as pages: on the terminal, as JSON and as HTML.

``make_page`` finds the page of a result in the table of ``kinds``. ``page`` has the parts that all pages are made of,
``terminal``, ``plain`` and ``html`` are their views, and ``words`` writes numbers. The page of each kind of result is a
module; if it is long, ``..._numbers`` computes its ``result.json``, and ``..._figures`` has its drawings. ``schemas``
lists the fields of every ``result.json``: an entry of a dict without a line there is left out.
"""

from attsvm._utils.doors import open_door

# for the other packages of attsvm; there are no public names
__door__ = (
    "SOFT_BELOW",
    "Claim",
    "ExperimentResult",
    "InspectionPages",
    "Page",
    "Table",
    "at_step",
    "claim_folder",
    "make_page",
    "number",
    "read_records",
    "summarize",
)
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
