"""What kind of work an operator is: what bounds its time."""

from suite.policies.ops import ATTENTION_OPERATORS

MATMUL, ATTENTION, ELEMENTWISE, COPY, HOST = CLASSES = "matmul", "attention", "elementwise", "copy", "host"

_COPIES = frozenset({"clone", "copy_", "_to_copy", "cat", "stack", "embedding", "index", "index_select"})
# They make no copy: a view that autograd is not told of, a scalar, a mark for a profiler.
_FREE = frozenset({"_unsafe_view", "scalar_tensor", "_local_scalar_dense", "detach", "alias", "empty"})
_FREE |= {"empty_like", "new_empty", "empty_strided", "new_empty_strided"}
_EXPONENTIAL = frozenset({"_softmax", "_log_softmax", "silu", "silu_backward", "gelu", "gelu_backward"})
_EXPONENTIAL |= {"exp", "sigmoid", "tanh", "cos", "sin", "logsumexp", "_log_softmax_backward_data"}


def bare(operator: str) -> str:
    """``mul`` from ``aten::mul.Tensor``."""
    return operator.rpartition("::")[2].partition(".")[0]


def class_of(operator: str, flops: int) -> str:
    """One of :data:`CLASSES`: attention, a matrix product, a copy, host work alone, or the rest."""
    name = bare(operator)
    if name.removesuffix("_backward") in ATTENTION_OPERATORS:
        return ATTENTION
    if flops:
        return MATMUL
    if name in _FREE or operator.startswith(("profiler::", "prim::")):
        return HOST
    return COPY if name in _COPIES else ELEMENTWISE


def is_exponential(operator: str) -> bool:
    """Whether a CPU is bound by arithmetic there, though no FLOPs are counted."""
    return bare(operator) in _EXPONENTIAL
