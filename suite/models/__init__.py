"""What is trained: decoder-only transformers in plain torch.

To add a family, write one module with one :class:`~suite.models.decoder.Decoder` and enter it in
:data:`~suite.models.shape.FAMILIES`. Classes are named there rather than imported: the parent
process, which checks models before a child exists, never imports torch.
"""

import pkgutil
from typing import TYPE_CHECKING

from suite.config.schema import CellConfig
from suite.models.check import check_kernel, check_model
from suite.models.shape import FAMILIES, Family

if TYPE_CHECKING:
    from suite.models.decoder import Decoder

__all__ = ["FAMILIES", "Family", "build_model", "check_kernel", "check_model"]


def build_model(config: CellConfig) -> "Decoder":
    """The cell's model with its initial weights.

    Parameters are created on the current default device in the current default dtype, and drawn from
    torch's global random state: the same seed gives the same weights, whatever policy comes later.
    """
    family: type[Decoder] = pkgutil.resolve_name(FAMILIES[config.model.family].decoder)
    return family(config.model, config.attention)
