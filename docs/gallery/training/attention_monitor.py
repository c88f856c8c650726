"""
Heads during training
=====================

``attsvm.inspect.AttentionMonitor`` records measures of every head while a model is trained. Here a model with two
layers learns to continue a repeated sequence, and the spectral norm of W = W_K W_Q'/√d_h grows in every head.
``monitor.page("heads")`` shows all measures on a page.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn.functional import cross_entropy

from attsvm.inspect import AttentionMonitor
from attsvm.inspect.attention_only import AttentionOnly, repeated_sequences

torch.manual_seed(0)
generator = torch.Generator().manual_seed(0)
model = AttentionOnly(vocabulary=16, length=16, size=32, heads=2)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
with AttentionMonitor(model, every=10) as monitor:
    for _ in range(301):
        tokens = repeated_sequences(16, generator, 16, 16)
        logits = model(tokens)[:, :-1]
        loss = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.step()

steps = [step for step, _ in monitor.records]
norms = np.stack([record["spectral_norm"] for _, record in monitor.records])
figure, axis = plt.subplots()
for head, curve in zip(monitor.heads, norms.T, strict=True):
    axis.plot(steps, curve, label=f"head {head}")
axis.set_xlabel("steps")
axis.set_ylabel("spectral norm of W")
axis.legend()
