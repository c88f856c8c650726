"""The history of a run as TensorBoard files."""

from pathlib import Path
from typing import Any

from attsvm.errors import ProblemError


class Board:
    """Writes the numbers of each epoch to TensorBoard files.

    ``folder``: None writes nothing.

    Raises ProblemError if TensorBoard is not installed.
    """

    def __init__(self, folder: Path | None) -> None:
        self._writer: Any = None
        if folder is not None:
            check_tensorboard()
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder / "tensorboard"))

    def write(self, row: dict[str, Any]) -> None:
        """Add the numbers of an epoch."""
        if self._writer is not None:
            for name, value in row.items():
                if isinstance(value, int | float) and name not in ("epoch", "step"):
                    self._writer.add_scalar(name, value, row["step"])
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def check_tensorboard() -> None:
    """Check that TensorBoard is installed.

    Raises ProblemError if it is not.
    """
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise ProblemError("tensorboard: it is not installed; pip install 'attsvm[papers]'") from None
