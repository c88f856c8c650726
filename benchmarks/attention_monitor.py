"""Cost of attsvm.inspect.AttentionMonitor at every=100, on a small GPT and a ViT.

    python benchmarks/attention_monitor.py [--steps 100] [--rounds 2]

Each round trains with the monitor, then without it, for as many steps, on one thread. One record falls into every 100
steps.
"""

import argparse
import time

import torch
import transformers
from torch import nn

from attsvm.inspect import AttentionMonitor


def gpt() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Four layers of width 128 on 8 sequences of 128 tokens."""
    config = transformers.GPT2Config(vocab_size=256, n_embd=128, n_head=4, n_layer=4, n_positions=128)
    tokens = torch.randint(256, (8, 128))
    return transformers.GPT2LMHeadModel(config), {"input_ids": tokens, "labels": tokens}


def vit() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Four layers of width 128 on 16 pictures of 64 patches."""
    config = transformers.ViTConfig(
        hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512, image_size=32, patch_size=4
    )
    pictures = {"pixel_values": torch.randn(16, 3, 32, 32), "labels": torch.randint(2, (16,))}
    return transformers.ViTForImageClassification(config), pictures


def seconds(
    model: nn.Module, batch: dict[str, torch.Tensor], steps: int, monitor: AttentionMonitor | None
) -> tuple[float, float]:
    """CPU time and wall time of some steps of AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    start, wall = time.process_time(), time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
        if monitor is not None:
            monitor.step()
    return time.process_time() - start, time.perf_counter() - wall


def main() -> None:
    """Measure both models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, help="of a round, with and without the monitor")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for make in (gpt, vit):
        model, batch = make()
        model.train()
        seconds(model, batch, 3, None)
        watched, plain, records, walls = 0.0, 0.0, 0.0, 0.0
        for _ in range(given.rounds):
            with AttentionMonitor(model, every=100) as monitor:
                of_round, wall = seconds(model, batch, given.steps, monitor)
                watched, walls, records = watched + of_round, walls + wall, records + monitor.seconds
            plain += seconds(model, batch, given.steps, None)[0]
        print(
            f"{make.__name__}: step {1e3 * plain / given.rounds / given.steps:.1f} ms of CPU time; records take"
            f" {records / walls:.2%} of the wall time; CPU time with the monitor {watched / plain - 1:+.2%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
