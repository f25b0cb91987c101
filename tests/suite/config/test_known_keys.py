"""Keys that nothing reads are refused, and what a sweep's file may hold."""

from pathlib import Path

import hydra
import pytest
from make_cell import CONF
from omegaconf import DictConfig, OmegaConf

from suite.config.known import check_known
from suite.errors import UsageError


def compose(*overrides: str) -> DictConfig:
    with hydra.initialize_config_dir(str(CONF.resolve()), version_base="1.3"):
        return hydra.compose("config", overrides=list(overrides))


REFUSED = [
    (["+x=1"], "x=1: no such key; keys are adopt, assumptions,"),
    (["+seqlen=1"], "did you mean seq_len?"),
    (
        ["+sweep.product=[{seq_len: [8]}]"],
        "sweep.product=[{'seq_len': [8]}]: no such key; keys are base, name,",
    ),
    (["+sweep.product=[]"], "did you mean sweep.products?"),
    (["sweep.products=3"], "sweep.products=3: expected a list"),
    (["sweep.base=seed"], "sweep.base=seed: expected a list"),
    (["+sweep=long_seq", "sweep.products=[]"], "sweep.products=[]: this sweep has none"),
]


@pytest.mark.parametrize(("user", "message"), REFUSED)
def test_a_key_that_nothing_reads_is_refused(user: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_known(compose(*user), compose(), user)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_sweep_that_is_no_mapping_is_refused() -> None:
    cfg = compose()
    OmegaConf.update(cfg, "sweep", 3, force_add=True)
    with pytest.raises(UsageError, match="sweep=3: expected a file with the keys name, scaled, base"):
        check_known(cfg, compose(), [])


@pytest.mark.parametrize("path", sorted((CONF / "sweep").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_sweep_has_only_keys_that_are_read_or_referred_to(path: Path) -> None:
    user = [f"+sweep={path.stem}"]
    check_known(compose(*user), compose(), user)
