"""How many model types of transformers are read, each made small with random weights, against its own attention.

A type of `AutoModel` gets the first of a few small configurations with which its model can be made, and the first of a
few batches that it accepts. It is read and equal if `inspect` reports it, and the attention of every layer is to 1e-5
that of the function which the model calls, and that which the model returns, if it does. A model that differs by more
from its function is read again in float64. Some types need the packages timm, natten, torchaudio or detectron2.

Run: python benchmarks/zoo.py [--types bert llama ...] [--results zoo.jsonl]; a later call goes on where one ended
"""

import argparse
import gc
import json
import os
import signal
import time
import warnings
from collections import Counter
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "critical"}

import numpy as np
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

import attsvm.inspect
from attsvm.errors import ProblemError
from cases import markdown
from zoo_models import made

EQUAL = 1e-5


def in_double(x):
    """A tensor of real numbers in float64; others as they are."""
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def attentions_of(output):
    """The attention (b, H, Q, T) in the output of a model."""
    if isinstance(output, torch.Tensor):
        return [output.double().numpy()] if output.ndim == 4 else []
    if hasattr(output, "items"):
        names = [name for name in output if "attention" in name or "output" in name]
        return [one for name in names for one in attentions_of(output[name])]
    return [one for part in output for one in attentions_of(part)] if isinstance(output, list | tuple) else []


def returned_error(found, model, batch):
    """The largest difference to the attention that the model returns, and of how many layers it does."""
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            theirs = attentions_of(model(**batch, output_attentions=True))
    except Exception:  # it returns none
        return None, 0
    # some models return logits; with a sink, some leave out its share
    theirs = [one for one in theirs if one.min() >= 0 and one.max() <= 1.001]
    captured = [found.source.captured(layer) for layer in sorted({*np.atleast_1d(found.layer).tolist()})]
    ours = [np.stack([one.probabilities(head) for head in range(one.num_heads)], axis=1) for one in captured]
    worst, count = 0.0, 0
    for one in theirs:  # each is that of a layer
        errors = []
        for layer, mine in zip(captured, ours, strict=True):
            asks, at = layer.positions >= 0, np.maximum(layer.positions, 0)[:, None, :, None]
            fits = one.shape[:2] == mine.shape[:2] and one.shape[3] == mine.shape[3] and one.shape[2] > at.max()
            if fits and layer.sink is None:
                rows = np.abs(np.take_along_axis(one, at, axis=2) - mine).max(axis=(1, 3))
                errors.append(float(rows[asks].max(initial=0.0)))
        if errors:
            worst, count = max(worst, min(errors)), count + 1
    return (worst if count else None), count


def measured(kind):
    """The outcome of a type."""
    try:
        model, batch = made(kind)
    except Exception as error:
        return {"outcome": "cannot be made", "why": f"{type(error).__name__}: {error}"[:200]}
    try:
        found = attsvm.inspect.inspect(model, batch, margins=False)
    except ProblemError as error:
        return {"outcome": "refused", "why": str(error)[:400]}
    rebuilt = np.atleast_1d(found.rebuilt_error)
    if np.nanmax(rebuilt, initial=0.0) > EQUAL:  # logits of many may be rounded by more in float32
        model, batch = model.double(), {name: in_double(x) for name, x in batch.items()}
        found = attsvm.inspect.inspect(model, batch, margins=False)
        rebuilt = np.atleast_1d(found.rebuilt_error)
    worst, count = returned_error(found, model, batch)
    numbers = {
        "layers": len({*np.atleast_1d(found.layer).tolist()}),
        "not_run": len(found.not_run),
        "rebuilt": float(np.nanmax(rebuilt)) if np.isfinite(rebuilt).any() else None,
        "not_compared": int(np.isnan(rebuilt).sum()),
        "returned": worst,
        "layers_returned": count,
    }
    known = [one for one in (numbers["rebuilt"], worst) if one is not None]
    outcome = "not compared" if not known else "equal" if max(known) <= EQUAL else "differs"
    return {"outcome": outcome, **numbers}


class Late(BaseException):
    """Ends what takes too long."""


def late(*_):
    raise Late


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--types", nargs="+", default=sorted(kind for kind in CONFIG_MAPPING if kind in MODEL_MAPPING_NAMES)
    )
    parser.add_argument("--results", type=Path, default=Path("zoo.jsonl"), help="file of measured types")
    parser.add_argument("--seconds", type=int, default=60, help="limit of one type")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.utils.logging.disable_progress_bar()
    signal.signal(signal.SIGALRM, late)
    lines = options.results.read_text().splitlines() if options.results.exists() else []
    rows = {row["type"]: row for row in map(json.loads, lines)}
    for kind in (one for one in options.types if one not in rows):
        start = time.perf_counter()
        signal.alarm(options.seconds)
        try:
            found = measured(kind)
        except Late:
            found = {"outcome": "took too long"}
        except Exception as error:
            found = {"outcome": "error", "why": f"{type(error).__name__}: {error}"[:300]}
        finally:
            signal.alarm(0)
        rows[kind] = {"type": kind, **found, "seconds": round(time.perf_counter() - start, 1)}
        with options.results.open("a") as file:
            file.write(json.dumps(rows[kind]) + "\n")
        gc.collect()
    found = [rows[kind] for kind in options.types]
    for row in found:
        if row["outcome"] != "equal":
            print(f"{row['type']}: {row['outcome']}; {row.get('why', row.get('returned', ''))}")
    counts = Counter(row["outcome"] for row in found)
    print(markdown(["outcome", "types"], [[outcome, str(count)] for outcome, count in counts.most_common()]))
    errors = [row[name] for row in found if row["outcome"] == "equal" for name in ("rebuilt", "returned") if row[name]]
    worst = max(errors, default=0.0)
    print(f"{len(found)} types of transformers {transformers.__version__}, largest difference {worst:.0e}")


if __name__ == "__main__":
    main()
