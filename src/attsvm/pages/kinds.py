"""The page of each kind of result. A page and what it needs are imported when a result of its kind is shown."""

from importlib import import_module
from typing import Any

from attsvm.pages.page import Page

PAGES = {
    "attsvm._fit.bags.BagFit": "bags:bags_page",
    "attsvm._fit.result.Fit": "fit:fit_page",
    "attsvm._fit.texts.next_words.NextWords": "next_token:next_token_page",
    "attsvm._fit.texts.result.TextFit": "text:text_page",
    "attsvm.estimator.predictions.Predictions": "predictions:predictions_page",
    "attsvm.estimator.regression_predictions.RegressionPredictions": "regression_predictions:numbers_page",
    "attsvm.inspect.series.Series": "comparison:comparison_page",
    "attsvm.pages.claims.Claim": "claims:claims_page",
    "attsvm.pages.records.Records": "monitor:monitor_page",
    "attsvm.pages.sweep_estimates.Summary": "sweep:sweep_page",
    "attsvm.papers.experiments.experiment.Experiment": "experiment:experiment_page",
    "attsvm.papers.figure.Figure": "claims:figure_list_page",
    "attsvm.papers.outcome.Outcome": "claims:outcome_page",
    "attsvm.problem.problem.Problem": "problem:problem_page",
    "attsvm.profiles.result.MarginProfile": "profile:profile_page",
    "attsvm.svm.solution.Solution": "solution:solution_page",
    "attsvm.training.run.Run": "run:run_page",
    "xarray.core.dataset.Dataset": "sweep:store_page",
}
"""The module of this package and the function that make the page of a result, by the class of the result.

The classes are named, because most of them belong to later layers.
"""


def make_page(result: Any, **about: Any) -> Page:
    """Make the page of a result, or of a list of results of one class.

    ``about``: the keyword arguments of the page of this kind: the ``command``, and what else the result does not say.
    """
    kinds = type(result[0] if isinstance(result, list) else result).__mro__
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
    known = next((PAGES[name] for name in names if name in PAGES), None)
    if known is None:
        raise TypeError(f"result: expected a result that has a page, got {kinds[0].__name__}")
    module, _, function = known.partition(":")
    page: Page = getattr(import_module(f"attsvm.pages.{module}"), function)(result, **about)
    return page
