"""Callbacks that let the trainers of ``transformers`` and Lightning call a monitor."""

from typing import Any, Protocol


class Stepped(Protocol):
    """What the callbacks call."""

    steps: int

    def step(self) -> None:
        """Count a step of the optimiser."""

    def close(self) -> None:
        """Finish the record of the monitor."""


def trainer_callback(monitor: Stepped) -> Any:
    """A ``transformers.TrainerCallback``: a step of the monitor after each one of the optimiser."""
    from transformers import TrainerCallback

    class MonitorCallback(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
            monitor.step()

        def on_train_end(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
            monitor.close()

    return MonitorCallback()


def lightning_callback(monitor: Stepped) -> Any:
    """A ``lightning.Callback``: a step of the monitor for each one of the optimiser."""
    from lightning.pytorch import Callback

    class MonitorCallback(Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            """After a batch; with accumulated gradients not every batch has a step."""
            while monitor.steps < trainer.global_step:
                monitor.step()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            monitor.close()

    return MonitorCallback()
