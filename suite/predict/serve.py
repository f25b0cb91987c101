"""``python -m suite.predict.serve``: predictions for other programs, as JSON lines.

A request a line on the standard input, an answer a line on the standard output, in order. A request has
``config``, a resolved cell (``suite.cell.Cell.resolved``), ``hardware``, the name of a file in
``conf/hardware``, and ``assumptions`` by name; its ``id`` is in the answer, beside ``figures`` and
``detail``, or ``error`` with the reason why there are none. Torch is loaded by the first request.
"""

import contextlib
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

import suite
from suite.cell import Cell, config_of
from suite.config.load import check_policy, load_hardware
from suite.config.schema import HardwareConfig
from suite.predict.layout.rank import check_parallel

_HARDWARE = Path(suite.__file__).resolve().parent.parent / "conf" / "hardware"


@cache
def hardware_named(name: str) -> HardwareConfig:
    """The file of that name in ``conf/hardware``. Raises ValueError if there is none."""
    known = sorted(path.stem for path in _HARDWARE.glob("*.yaml"))
    if name not in known:
        raise ValueError(f"hardware={name}: expected one of {', '.join(known)}")
    return load_hardware(OmegaConf.load(_HARDWARE / f"{name}.yaml"))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What is predicted for one request; why not, in ``error``, whatever is wrong with it."""
    try:
        from suite.predict.timed import predict_timed

        config = config_of(request["config"])
        check_parallel(config)
        check_policy(Cell(config), here=False)
        hardware = hardware_named(str(request["hardware"]))
        found = predict_timed(config, hardware=hardware, assumptions=request.get("assumptions") or {})
    except Exception as problem:  # noqa: BLE001 - one bad request must not end the others
        return {"error": f"{type(problem).__name__}: {problem}"}
    short = {k: found.detail[k] for k in _TOLD if k in found.detail}
    return {"figures": found.figures, "detail": short, "warnings": found.warnings}


# Of a record's detail, what is small and answers a question about the peak.
_TOLD = (
    "peak_phase",
    "peak_operator",
    "peak_module",
    "phase_peaks",
    "peak_composition",
    "top_tensors",
    "assumptions",
    "sources",
)


def main() -> None:
    """Answer until the input ends."""
    # Whatever a library prints must not stand between the answers.
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            if not line.strip():
                continue
            request = json.loads(line)
            reply = {"id": request.get("id"), **answer(request)}
            out.write(json.dumps(reply) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
