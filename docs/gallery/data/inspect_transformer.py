"""
The attention heads of a transformer
====================================

``attsvm.inspect.inspect`` measures every attention head of a model on a batch: how concentrated its attention is, and
how its margin compares with the best margin of any weights with the same selection. This BERT has random weights.
"""

import torch
import transformers

import attsvm.torch

torch.manual_seed(0)
model = transformers.BertModel(
    transformers.BertConfig(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64, vocab_size=100
    )
).eval()
batch = {"input_ids": torch.randint(0, 100, (4, 12))}
inspection = attsvm.inspect.inspect(model, batch, gap=0.05)
inspection.plot("margin_ratio")
