"""The exception for invalid arguments."""


class ProblemError(ValueError):
    """An argument is not valid. The message names the argument, what was expected and what was given."""
