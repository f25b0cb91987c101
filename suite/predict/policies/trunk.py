"""What a rule answers with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from suite.config.schema import CellConfig, PolicyConfig


@dataclass(frozen=True)
class Trunk:
    """Some blocks of a cell under a policy.

    Attributes:
        saved_bytes: alive when the forward ends, because of these blocks.
        transient_bytes: what a region rebuilds at once, at most.
        recomputed_flops: executed by replays, in all of these blocks.
        host_bytes: in host memory when the forward ends, all of it moved there by then.
        exact: the formula covers every saved tensor and every product that runs again.
    """

    saved_bytes: int
    transient_bytes: int = 0
    recomputed_flops: int = 0
    host_bytes: int = 0
    exact: bool = True

    def __add__(self, other: "Trunk") -> "Trunk":
        """Further blocks of the same model."""
        return Trunk(
            self.saved_bytes + other.saved_bytes,
            max(self.transient_bytes, other.transient_bytes),
            self.recomputed_flops + other.recomputed_flops,
            self.host_bytes + other.host_bytes,
            exact=self.exact and other.exact,
        )


# The workload, the policy, and the indices of the blocks that it is for.
Rule = Callable[[CellConfig, PolicyConfig, Sequence[int]], Trunk]
