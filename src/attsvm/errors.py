"""The one exception for what a user passed."""


class ProblemError(ValueError):
    """An argument that does not fit; the message names it, what was found and what was wanted."""
