"""Examples and their labels as tensors."""

from dataclasses import dataclass

from torch import Tensor, device


@dataclass(frozen=True)
class Rows:
    """Examples and their labels."""

    inputs: Tensor  # shape (n, ...), token numbers, padded at the end, or pictures
    labels: Tensor  # shape (n,)
    padding: int | None = None  # the number that texts are padded with. Batches are cut to their longest text.

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: Tensor, device: device, trim: bool = True) -> tuple[Tensor, Tensor]:
        """Some examples and their labels, on a device."""
        inputs = self.inputs[rows]
        if trim and self.padding is not None:
            longest = int((inputs != self.padding).sum(-1).max())
            inputs = inputs[:, :longest]
        return inputs.to(device), self.labels[rows].to(device)
