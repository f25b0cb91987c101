"""The quick compose is Hydra's, error for error."""

from collections.abc import Iterator
from pathlib import Path

import hydra
import pytest
from omegaconf import OmegaConf

from runners.composing import compose

CONF = str(Path(__file__).parents[2] / "conf")


@pytest.fixture(autouse=True)
def _initialized() -> Iterator[None]:
    with hydra.initialize_config_dir(CONF, version_base="1.3"):
        yield


def _outcome(compose_: object, overrides: list[str]) -> tuple[object, ...]:
    try:
        found = compose_(overrides)  # type: ignore[operator]
    except Exception as problem:  # noqa: BLE001 - both must fail alike
        return type(problem), str(problem)
    # Before interpolations resolve, with the order of keys and the flag that refuses new ones.
    return OmegaConf.to_yaml(found), OmegaConf.is_struct(found), OmegaConf.is_struct(found.model)


CASES = [
    [],
    ["seq_len=512", "model=gpt_mini"],
    ["policy=segments", "policy.n=2", "model.n_layers=7", "seq_len=64"],
    ["policy.n=2", "policy=segments"],
    ["seq_len=64", "seq_len=128"],
    ["budget=1GiB", "retry=[oom]", "sweep.products=[{policy: [none]}]"],
    ["+sweep=long_seq", "batch_size=3"],
    ["++seq_len=3", "seq_len=2"],
    ["seq_len=2", "++seq_len=3"],
    ["~seq_len", "batch_size=2"],
    ["+model.extra=1", "model.extra=2"],
    ["model={n_layers: 3}"],
    ["paths.runs='a b'", "paths.reports=${paths.runs}"],
    ["hydra.sweep.dir=elsewhere", "hydra/launcher=local"],
    ["seq_len=[1,2]"],
    ["nothing=2"],
    ["policy.nothing=2"],
    ["policy=nothing"],
    ["seq_len.deeper=2"],
    ["model@other=gpt_mini"],
    ["seq_len=null"],
]


@pytest.mark.parametrize("overrides", CASES, ids=" ".join)
def test_it_is_hydras(overrides: list[str]) -> None:
    expected = _outcome(lambda o: hydra.compose("config", overrides=o), overrides)
    assert _outcome(compose, overrides) == expected
    assert _outcome(compose, overrides) == expected


def test_what_one_caller_changes_is_not_the_next_ones() -> None:
    compose(["seq_len=64"]).model.n_layers = 99
    assert compose(["seq_len=64"]).model.n_layers != 99
