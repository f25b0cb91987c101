"""What is said of recomputation, judged by the records of a sweep: ``+sweep=claims`` has all it takes.

To add a claim, write a function from cells to a :class:`~analysis.claims.finding.Judgement` and enter it
in :data:`CLAIMS`. A claim whose cells a sweep lacks is *not measured*; one that does not hold on the device
says so and why.
"""

from collections.abc import Sequence

from analysis.claims.depth import judge_depth
from analysis.claims.finding import Claim, Judgement
from analysis.claims.memory import judge_length, judge_order_of_magnitude, judge_selective
from analysis.claims.work import judge_cheap, judge_one_forward, judge_slowdown
from suite.summary import CellSummary

CLAIMS = (
    Claim(
        "sqrt",
        "With sqrt(N) segments activation memory grows as the square root of the depth N",
        "Chen et al. 2016, arXiv:1604.06174",
        "exponent 0.5, against 1 when everything is kept",
        judge_depth,
    ),
    Claim(
        "one_forward",
        "Full recomputation costs about one more forward, a third of the step's arithmetic",
        "Chen et al. 2016; Korthikanti et al. 2022, arXiv:2205.05198",
        "+33 % FLOPs",
        judge_one_forward,
    ),
    Claim(
        "slowdown",
        "Full recomputation makes a step 30 to 40 % slower",
        "Korthikanti et al. 2022, section 5 (39 % per layer at 22B); Chen et al. 2016 (about 30 %)",
        "step time +30 to +40 %",
        judge_slowdown,
    ),
    Claim(
        "order_of_magnitude",
        "Full recomputation cuts activation memory by an order of magnitude",
        "common advice; 34 s b h against 2 s b h a layer in Korthikanti et al. 2022, table 2",
        "10 times less or more",
        judge_order_of_magnitude,
    ),
    Claim(
        "selective",
        "Recomputing only attention's softmax gives most of the saving for a few percent of the time",
        "Korthikanti et al. 2022: 5 times less with sequence parallelism, 90 % of the overhead gone",
        "more than half of what full saves, for 5 % of the FLOPs or less",
        judge_selective,
    ),
    Claim(
        "cheap",
        "Norms, activations and dropout can be recomputed while every matrix product is kept",
        "Megatron-LM, output-discarding recomputation",
        "less memory, no FLOP twice",
        judge_cheap,
    ),
    Claim(
        "length",
        "On a fixed budget recomputation trains longer sequences",
        "common advice",
        "longer than without",
        judge_length,
    ),
)

__all__ = ["CLAIMS", "Claim", "Judgement", "judge"]


def judge(cells: Sequence[CellSummary]) -> list[tuple[Claim, Judgement]]:
    """Every claim with its judgement from ``cells``."""
    return [(claim, claim.judge(cells)) for claim in CLAIMS]
