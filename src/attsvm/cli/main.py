"""The entry point of the command line ``attsvm``. Nothing slow is imported before signals are handled."""

from attsvm.cli.interrupts import interruptible


def main() -> None:
    """Run the command line. An error gives one line on stderr; docs/guide/results.md lists the exit statuses."""
    with interruptible():
        from attsvm.cli.app import run

        run()
