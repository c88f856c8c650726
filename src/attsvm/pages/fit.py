"""The page of ``attsvm fit``: how well attention predicts, what it selects, and how close it is to an Att-SVM."""

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import lazy_loader
import numpy as np

from attsvm._utils.progress import counted
from attsvm.pages.class_report import class_table, majority, one_class, report_rows
from attsvm.pages.fit_numbers import fit_numbers, missing_error, weights_symbol
from attsvm.pages.page import AnyPart, Card, Cards, Figures, Heading, Page, SpecialPart, Table, Tables, Text
from attsvm.pages.words import (
    FEW_ROWS,
    SOFT_BELOW,
    Rows,
    counts,
    number,
    percent,
    rate,
    saturation_word,
    share_interval,
    with_interval,
)

if TYPE_CHECKING:
    from attsvm._fit import Fit
    from attsvm.profiles import Recommendation

fit_figures = lazy_loader.load("attsvm.pages.fit_figures", suppress_warning=True)


def fit_page(fit: "Fit", *, command: str, threads: int | None = None, interrupted: bool = False) -> Page:
    """Make the page of a fit, from the arguments of :func:`attsvm.pages.fit_numbers.fit_numbers`.

    An interrupted fit gets no figures: drawing them takes longer than a user waits after Ctrl-C.
    """
    result = fit_numbers(fit, command=command, threads=threads, interrupted=interrupted)
    data, training = result["data"], result["training"]
    trained = training["head"] == "trained"
    head = "attention and prediction head trained together" if trained else "attention, fixed prediction head"
    numbers = Table.named(tables(fit, result))
    return Page(
        result,
        title=f"{data['source'] if fit.source is None else fit.source.title()}: {head}",
        kicker=f"{data['train']:,} training and {data['test']:,} test sequences of {_sizes(fit, data)}"
        f", d = {data['dim']} · {training['attention']} attention {weights_symbol(fit)} · head {training['head']}"
        f" · {training['steps_done']:,} steps in {training['seconds']:.1f} s",
        verdict=verdict(fit, result),
        body=partial(_body, fit, result, numbers),
        notes=[*notes(fit, result)],
        terminal=[*numbers, _classes(result, "Classes")],
        made_by=f"Seed {result['seed']}",
        kept=("the run", "run.npz"),
        others={"run.npz": fit.run.save} | ({"model.npz": fit.classifier.save} if fit.classifier else {}),
    )


def _body(fit: "Fit", result: dict[str, Any], numbers: list[Table]) -> Iterator[AnyPart]:
    yield Cards([*_cards(fit, result)])
    yield Heading("Classes")
    yield _classes(result)
    compared, theory = result["comparison"], result["theory"]
    if compared:
        yield Heading("Comparison")
        columns = ["classifier", "test accuracy", "right token selected"]
        yield Table(comparison_rows(compared), columns, kind="compared")
        yield Text(about_comparison(compared))
    drawn = [] if result["interrupted"] else fit_figures.draw_fit(fit)
    if drawn:
        yield Heading("Figures")
        yield Figures(drawn, wide=["pictures"], most="44rem")
    # where there are pictures, a figure shows them
    if drawn and not any(one.name in ("picks", "pictures") for one in drawn):
        sequences = fit_figures.single_sequences(fit)
        if sequences:
            yield Heading("Attention on single sequences")
            yield SpecialPart("square", sequences)
    if theory:
        yield Heading("What theory says")
        yield Text(f"{theory['theorem']}. If its hypotheses hold, {theory['conclusion']}. On the training sequences:")
        words = {True: "yes", False: "no", None: "not decided"}
        yield Tables([Table([(one["statement"], words[one["holds"]]) for one in theory["hypotheses"]])])
    yield Heading("Numbers")
    yield Tables(numbers)


def _classes(result: dict[str, Any], title: str = "") -> Table:
    part = _shown_part(result)
    return class_table(
        result["report"][part], f"{'test' if part == 'test' else 'training'} {_rows(result, part)[1]}", title
    )


def _shown_part(result: dict[str, Any]) -> str:
    """The part whose numbers lead: the test part, if there is one."""
    return "train" if result["accuracy"]["test"] is None else "test"


def _sizes(fit: "Fit", data: dict[str, Any]) -> str:
    tokens = f"{'up to ' * (fit.train.mask is not None)}{counted(data['tokens'], 'token')}"
    if data["queries"] is None:
        return tokens
    queries = "query" if data["queries"] == 1 else "queries"
    return f"{tokens} and {'up to ' * (fit.train.query_mask is not None)}{data['queries']} {queries}"


def _cards(fit: "Fit", result: dict[str, Any]) -> Iterator[Card]:
    saturation, errors = result["saturation"], result["direction_error"]
    part = _shown_part(result)
    baseline = (
        f"mean token, logistic regression: {accuracy_of(result, 'baseline_' + part)}; largest training class: "
        f"{majority(result['report'][part])}"
    )
    name = f"{'Test' if part == 'test' else 'Training'} accuracy"
    yield Card.share(name, accuracy_of(result, part), baseline)
    right = _right_share(result, part)
    if right:
        yield Card.share("Right token selected", right)
    yield Card(
        "Median largest probability",
        number(saturation["median_largest_probability"]),
        "not saturated" if fit.soft else f"saturated; the lowest is {saturation['lowest_largest_probability']:.3g}",
    )
    if errors is not None:
        optimal = f"{percent(result['selection']['share_optimal'])} of the queries select their optimal token"
        yield Card("Optimal tokens", separable_word(result["optimal_tokens"]), optimal)
        yield Card("Direction error", number(errors["final"]), "to the Att-SVM of the trained selection")


def _right_share(result: dict[str, Any], part: str) -> str:
    """In how many sequences the token that decides the label has the largest attention; empty if it is not known."""
    right = result["selection"]["right"]
    if right is None or part not in right:
        return ""
    return rate(right[part], result["data"][part], right[f"{part}_interval"])


def verdict(fit: "Fit", result: dict[str, Any]) -> str:
    """The result in a few sentences."""
    part = _shown_part(result)
    number_of, rows = _rows(result, part)
    kind = f"{'test' if part == 'test' else 'training'} {rows}"
    of_all = f" {kind}" if result["data"][part] < FEW_ROWS else f" of the {number_of:,} {kind}"
    first = (
        f"The layer classifies {accuracy_of(result, part)}{of_all} correctly; logistic regression "
        f"on the mean token classifies {accuracy_of(result, 'baseline_' + part)}, and always predicting the largest "
        f"class {majority(result['report'][part])}. "
    )
    if result["comparison"] is not None:
        name, share = _best_without_attention(result["comparison"])
        first += f"The best classifier without attention, {name}, classifies {share} correctly. "
    share = _right_share(result, part)
    if share:
        first += f"The token that decides the label has the largest attention in {share} of the {kind}. "
    missing = missing_error(fit)
    if missing:
        return f"{first}No Att-SVM comparison is reported: {missing}."
    return (
        f"{first}The attention is saturated. The direction error between its weights and the Att-SVM of the tokens "
        f"that they select is {number(result['direction_error']['final'])}. " + theory_sentence(result["theory"])
    )


def theory_sentence(theory: dict[str, Any]) -> str:
    """Whether the theorem applies: which of its hypotheses do not hold, and which are not decided."""
    total = len(theory["hypotheses"])
    failing = sum(one["holds"] is False for one in theory["hypotheses"])
    open_ones = sum(one["holds"] is None for one in theory["hypotheses"])
    name = theory["theorem"].partition(":")[0]
    if not failing and not open_ones:
        return f"All hypotheses of the theorem ({name}) hold."
    parts = [f"{failing} of its {total} hypotheses {'does' if failing == 1 else 'do'} not hold"] if failing else []
    parts += [f"{open_ones} of {total} could not be decided"] if open_ones else []
    return f"The theorem ({name}) does not prove that this is the limit: {' and '.join(parts)}."


def accuracy_of(result: dict[str, Any], name: str) -> str:
    """An accuracy of the result by its name, with its interval; the counts of queries if it is of few sequences."""
    accuracy, part = result["accuracy"], name.removeprefix("baseline_")
    if result["data"][part] < FEW_ROWS:
        return counts(accuracy[name], _rows(result, part)[0])
    return with_interval(accuracy[name], accuracy[f"{name}_interval"])


def _rows(result: dict[str, Any], part: str) -> tuple[int, str]:
    """How many outputs an accuracy counts, and what they are called."""
    data = result["data"]
    return data[f"{part}_outputs"], "sequences" if data["queries"] in (None, 1) else "queries"


def notes(fit: "Fit", result: dict[str, Any]) -> Iterator[str]:
    """Return the warnings shown above the results."""
    training = result["training"]
    if fit.interrupted:
        yield (
            f"Interrupted: training stopped at step {training['steps_done']:,} of {training['steps']:,}. All numbers "
            "describe the partial run."
        )
    elif result["interrupted"] and fit.relevant is None:
        yield "Interrupted: the figures were not drawn."
    elif result["interrupted"]:
        compared = result["comparison"]
        covers = f"covers {_seeds(compared)}" if compared else "was not finished for any draw"
        yield f"Interrupted: the comparison with other classifiers {covers}."
    elif result["status"] in _ENDED:
        yield f"Training ended early at step {training['steps_done']:,} because {_ENDED[result['status']]}."
    if training["scale"] == "columns":
        yield "Each column of the tokens is divided by its own spread; `--scale common` divides all by one number."
    if training["precise_until"] is not None:
        yield f"The logits passed 1e8 at step {training['precise_until']:,}. From then on, rounding errors matter."
    alone = one_class(result["report"][_shown_part(result)])
    if alone:
        of_all = _rows(result, _shown_part(result))[1]
        yield f"The layer predicts {alone} for all {of_all}, so its accuracy is the share of that class."
    if _counts_queries(result):
        yield (
            "Accuracies are shares of queries. Their 95% intervals count each sequence once, because the queries of a "
            "sequence are not independent."
        )
    if result["direction_error"] is not None and _still_changing(result):
        yield (
            "The selection still changed at the last record, so more steps may lead to another selection. The "
            "direction error is for the present selection."
        )
    if fit.other_norms is not None and fit.other_norms.better is not None:
        others, at = fit.other_norms, fit.other_norms.better
        yield _better_norm(others.tokens, others.found, at, float(others.half_width[at]))
    if fit.chosen is not None and fit.soft and result["status"] == "finished" and _farthest_logits(fit) < _NEEDED:
        yield (
            f"With weights of norm {number(training['norm'])} no softmax over these tokens can be saturated. Train "
            "for more steps, or scale the tokens to a size of about 1."
        )


def _better_norm(selected: str, found: "Recommendation", at: int, half_width: float) -> str:
    """How much better the Att-SVMs of a norm select than those of the default one, the first."""
    tokens = {"optimal": "optimal token", "relevant": "token that decides the label"}
    return (
        f"The {found.norms[at]} norm suits these data better than {found.norms[0]}: on held-out training sequences, "
        f"its Att-SVMs select the {tokens[selected]} in {percent(found.share[at])} of the queries, and the Att-SVMs "
        f"of {found.norms[0]} in {percent(found.share[0])} (difference {percent(found.gain[at])} ± "
        f"{percent(half_width)}); `attsvm.recommend` names an optimiser for this norm."
    )


def _counts_queries(result: dict[str, Any]) -> bool:
    """Whether the page states intervals of shares of queries, several of which are of one sequence."""
    return (
        _rows(result, "train")[1] == "queries" and max(result["data"][part] for part in ("train", "test")) >= FEW_ROWS
    )


def tables(fit: "Fit", result: dict[str, Any]) -> Iterator[tuple[str, Rows]]:
    """Tables of names and values: prediction and selection, and if a theorem applies separability and direction."""
    accuracy, saturation, selection = result["accuracy"], result["saturation"], result["selection"]
    if accuracy["test"] is not None:
        rows = [
            ("test accuracy", accuracy_of(result, "test")),
            ("… of the mean token", accuracy_of(result, "baseline_test")),
            *report_rows(result["report"]["test"]),
        ]
    else:
        rows = []
    rows += [
        ("training accuracy", accuracy_of(result, "train")),
        ("… of the mean token", accuracy_of(result, "baseline_train")),
        *report_rows(result["report"]["train"])[: 3 if accuracy["test"] is None else 1],
        ("training loss", number(result["training"]["loss"])),
    ]
    yield "Prediction", rows
    yield (
        "Saturation",
        [
            ("median largest probability", number(saturation["median_largest_probability"])),
            ("lowest largest probability", number(saturation["lowest_largest_probability"])),
            (f"queries at {SOFT_BELOW} or above", percent(saturation["share_above_threshold"])),
            ("attention", saturation_word(fit.soft)),
        ],
    )
    rows = [
        ("tokens selected most", _most_selected(selection["counts"])),
        ("queries that select their optimal token", percent(selection["share_optimal"])),
        ("unchanged since step", _settled(result)),
    ]
    for part, name in (("test", "test"), ("train", "training")):
        share = _right_share(result, part)
        if share:
            rows.append((f"largest attention on the right token, {name}", share))
    yield "Selection", rows
    if result["comparison"] is not None:
        compared = result["comparison"]
        yield f"Test accuracy, mean of {_seeds(compared)}", [(one[0], one[1]) for one in comparison_rows(compared)]
    if result["direction_error"] is None:
        return
    yield "Optimal tokens (best under v)", _solution_rows(result["optimal_tokens"])
    chosen = result["att_svm"]
    rows = _solution_rows(chosen)
    if chosen["trained_margin"] is not None:
        rows += [
            ("margin of the trained weights", number(chosen["trained_margin"])),
            ("margin ratio (margin over the best margin for its norm)", number(chosen["margin_ratio"])),
        ]
    if chosen["locally_optimal"] is not None:
        rows.append(("locally optimal", "yes" if chosen["locally_optimal"] else "no"))
    yield "Trained selection", rows
    if result["relevant_tokens"] is not None:
        yield "The right tokens", _solution_rows(result["relevant_tokens"])
    yield "Direction error", _error_rows(result["direction_error"]["steps"], result["direction_error"]["errors"])


def comparison_rows(comparison: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Each classifier, its mean test accuracy over the seeds, and how often it attends most to the right token."""
    rows = []
    sizes = comparison["test_sequences"], len(comparison["seeds"]) == 1
    for one in comparison["classifiers"]:
        accuracy, right = (
            "-" if one[name] is None else _mean_share(one[name], one[f"{name}_interval"], *sizes)
            for name in ("mean_accuracy", "mean_right")
        )
        rows.append((CLASSIFIERS.get(one["classifier"], f"logistic regression, {one['classifier']}"), accuracy, right))
    return rows


def _best_without_attention(comparison: dict[str, Any]) -> tuple[str, str]:
    """The classifier without attention of the highest mean accuracy, and that accuracy."""
    rows = zip(comparison["classifiers"], comparison_rows(comparison), strict=True)
    without = [
        (one, row) for one, row in rows if one["right_shares"] is None and one["classifier"] != "the right token alone"
    ]
    _, (name, share, _) = max(without, key=lambda found: found[0]["mean_accuracy"])
    return name, share if len(comparison["seeds"]) == 1 else f"{share}, mean of {_seeds(comparison)},"


def about_comparison(comparison: dict[str, Any]) -> str:
    """Explain the comparison, below its heading."""
    return (
        f"Means over {_seeds(comparison)} of the data, each with {comparison['test_sequences']:,} test sequences, with "
        "95% intervals (Student's, of the mean over the draws; Wilson's, for a single draw; none where all draws "
        "agree). The draws share the pool they are made of, so the intervals describe the draw, not the pool. Every "
        "classifier sees the same training and test sequences. The penalties of logistic regression, and the width of "
        "the kernel that the random Fourier features approximate, are chosen by three-fold cross-validation on the "
        "training sequences. The last row "
        "uses the token that decides the label: an upper bound for any selection."
    )


def _mean_share(share: float, interval: tuple[float, float] | None, count: int, single: bool) -> str:
    if single:
        return rate(share, count, share_interval(share, count))
    if interval is None:
        return f"{counts(share, count) if count < FEW_ROWS else percent(share)} (the same in all draws)"
    return f"{share * count:.1f} of {count}" if count < FEW_ROWS else with_interval(share, interval)


def _seeds(comparison: dict[str, Any]) -> str:
    return counted(len(comparison["seeds"]), "draw")


CLASSIFIERS = {
    "this layer": "attention (this layer)",
    "always the largest class": "always the largest class",
    "mean of random Fourier features of the tokens": "logistic regression, random Fourier features",
    # without what a terminal of 80 columns has no room for
    "largest entries over the tokens": "logistic regression, largest entries",
}


def separable_word(solution: dict[str, Any]) -> str:
    """Separable, not separable, or undecided."""
    return {True: "separable", False: "not separable", None: "undecided"}[solution["separable"]]


_ENDED = {"stalled": "the gradient became exactly zero", "non_finite": "the next step would have overflowed"}

_NEEDED = math.log(SOFT_BELOW / (1 - SOFT_BELOW))
"""The smallest difference of two logits for which a probability can reach the threshold."""


def _farthest_logits(fit: "Fit") -> float:
    """Upper bound of the difference of two logits of a query under weights of this norm, for any direction."""
    problem = fit.train.canonical
    keys, queries = (np.linalg.norm(rows, axis=-1).max() for rows in (problem.keys, problem.queries))
    return float(2 * fit.history["norm"][-1] * keys * queries)


def _still_changing(result: dict[str, Any]) -> bool:
    return bool(0 < result["training"]["steps_done"] == result["selection"]["settled_at_step"])


def _settled(result: dict[str, Any]) -> str:
    if _still_changing(result):
        return "still changing at the last record"
    return f"{result['selection']['settled_at_step']:,}"


def _most_selected(counts: list[int]) -> str:
    order = sorted(range(len(counts)), key=lambda token: -counts[token])
    found = [f"{token} ({counts[token]}×)" for token in order if counts[token]]
    return ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")


def _solution_rows(solution: dict[str, Any]) -> Rows:
    rows = [("Att-SVM", f"{separable_word(solution)} ({solution['status']})")]
    if solution["status"] == "infeasible":
        return rows
    return [
        *rows,
        ("largest possible margin", number(solution["margin"])),
        ("support tokens", f"{solution['support_tokens']:,}"),
        ("relative duality gap", number(solution["gap"])),
    ]


def _error_rows(steps: list[int], errors: list[float]) -> Rows:
    """The last record of each power of ten, and the final one."""
    wanted = {max(i for i, step in enumerate(steps) if step <= 10**k) for k in range(12) if steps[0] <= 10**k}
    return [(f"step {steps[i]:,}", number(errors[i])) for i in sorted({*wanted, len(steps) - 1})]
