"""Estimates for what torch's partitioner decides: budget."""

from collections.abc import Sequence

from suite.config.schema import CellConfig, PolicyConfig
from suite.policies import make_policy
from suite.policies.budget import Budget
from suite.predict.policies.regions import block_replay, input_bytes
from suite.predict.policies.trunk import Trunk
from suite.predict.tensors import block_tensors, total


def budget(config: CellConfig, policy: PolicyConfig, blocks: Sequence[int]) -> Trunk:
    """The share of what eager mode keeps beyond the inputs, and as much of the replay as it leaves out.

    The inputs are each block's, or of the whole model nothing of note. Products are kept first, so that
    replay is at most its share of the FLOPs; what is rebuilt at once is a block, or all of the model.
    """
    family = make_policy(policy)
    assert isinstance(family, Budget)
    fraction, depth, kept = family.config.fraction, len(blocks), total(block_tensors(config))
    whole = config.compile == "model"
    inputs = 0 if whole else input_bytes(config)
    rebuilt = (1 - fraction) * (kept - inputs)
    return Trunk(
        round(depth * (kept - rebuilt)),
        round(rebuilt) * (depth if whole else 1),
        round((1 - fraction) * depth * block_replay(config)),
        exact=False,
    )
