"""The errors a person is meant to read."""


class UsageError(Exception):
    """Bad input: one line that names the key, the value and what is allowed. Exit code 2."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        self.key, self.value, self.allowed = key, value, allowed
        super().__init__(f"{key}={value}: {allowed}")


class Unsupported(Exception):
    """This policy or kernel cannot apply to this workload; said before anything runs where possible.

    A cell that raises it gets the status ``unsupported`` inside a sweep; alone it is a usage error.
    """


class Impossible(UsageError, Unsupported):
    """Values that are good by themselves and cannot be together: alone a usage error, in a sweep a cell."""


class MatchedNothing(Unsupported):
    """A policy selected no block, module or operator; the message lists what exists."""
