"""``attsvm fit`` on texts: read, fit, and write page and results."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attsvm.cli.shared import progress, result_folder, terminal_table


def fit_texts(
    source: str,
    *,
    text: str = "text",
    label: str = "label",
    test: str | None = None,
    out: Path | None,
    force: bool,
    json: bool,
    command: str,
    threads: int | None,
    seed: int,
    optimizer: str | None = None,
    p: float | None = None,
    steps: int | None = None,
    learning_rate: float | None = None,
    **options: Any,
) -> None:
    """Fit on the texts of ``source`` and show the result; ``options`` are those of :func:`fit_text`."""
    from attsvm.report.plain import dumps

    with result_folder(out, force) as folder:
        from attsvm.apps.texts.fit_text import fit_text, text_classifier
        from attsvm.apps.texts.text import read_texts
        from attsvm.report.texts.numbers import text_numbers

        texts = read_texts(source, text, label)
        test_texts = read_texts(test, text, label) if test else None
        classifier = text_classifier(optimizer=optimizer, p=p, max_steps=steps, learning_rate=learning_rate, seed=seed)
        with progress() as advance:
            done = fit_text(
                texts,
                test_texts,
                seed=seed,
                classifier=classifier,
                callback=lambda line: advance(_at(line, classifier.max_steps)),
                **options,
            )
        result = text_numbers(done, source=source, test=test, command=command, seed=seed, threads=threads)
        if folder:
            from attsvm.report.texts.folder import write_text_folder

            write_text_folder(folder, done, result, command)
    if json:
        print(dumps(result))
    else:
        _show(result)
    if out:
        print(f"{out}: index.html, figures and result.json", file=sys.stderr)


def _at(line: dict[str, float], steps: int) -> SimpleNamespace:
    return SimpleNamespace(step=line["steps"], steps=steps, loss=line["objective"])


def _show(result: dict[str, Any]) -> None:
    from rich.console import Console

    from attsvm.report.texts.words import notes, tables, verdict

    console = Console()
    console.print(terminal_table(tables(result)))
    console.print(verdict(result), highlight=False)
    for note in notes(result):
        console.print(note, style="bold yellow", highlight=False)
