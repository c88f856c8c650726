"""
Attention heads during training
===============================

``attsvm.inspect.AttentionMonitor`` records measures of every attention head while a model trains. Here a GPT-2 with two
layers learns to continue a repeated sequence, and the spectral norm of W = W_K W_Q'/√d_h grows in every head. If you
pass ``log="heads.csv"``, ``attsvm monitor heads.csv --out heads`` shows all measures on a page.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
import transformers

from attsvm.inspect import AttentionMonitor

transformers.logging.set_verbosity_error()
torch.manual_seed(0)
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=16, n_embd=32, n_layer=2, n_head=2)).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
with AttentionMonitor(model, every=10) as monitor:
    for _ in range(151):
        tokens = torch.randint(16, (16, 8)).repeat(1, 2)
        loss = model(tokens, labels=tokens).loss
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
