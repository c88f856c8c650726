"""
Mirror descent in PyTorch
=========================

``attsvm.torch.MirrorDescent`` trains a small attention model in PyTorch with two values of p. With p = 1.1, most
weights of the keys and queries stay small. With p = 3, many are large.
"""

import matplotlib.pyplot as plt
import torch

from attsvm.torch import MirrorDescent

torch.manual_seed(0)
tokens = torch.randn(64, 6, 16)
labels = torch.where(tokens[:, :, 0].max(dim=1).values > 1.2, 1.0, -1.0)
first, first_head = torch.randn(2, 16, 16) / 4, torch.randn(16) / 4  # with p = 1.1 weights leave zero slowly

_, axis = plt.subplots(figsize=(5, 3))
for p, look in [(1.1, "-"), (3.0, "--")]:
    key_query = torch.nn.Parameter(first.clone())
    head = torch.nn.Parameter(first_head.clone())
    optimizer = MirrorDescent([key_query, head], lr=0.01, p=p, normalize=True)
    for _ in range(200):
        logits = (tokens @ key_query[0]) @ (tokens[:, :1] @ key_query[1]).mT
        output = (logits.softmax(dim=1) * tokens).sum(dim=1) @ head
        loss = torch.nn.functional.softplus(-labels * output).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    sizes = key_query.detach().abs().flatten().sort(descending=True).values
    axis.semilogy(sizes / sizes[0], look, label=f"p = {p}, loss {loss:.2f}")
axis.set(xlabel="weight, from large to small", ylabel="|weight| / largest", ylim=(1e-3, 1))
axis.legend()
