"""Hydra's and OmegaConf's errors as the one line that a person can act on."""

import difflib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

# What composing a configuration may raise because of what a person wrote.
COMPOSITION_ERRORS = (HydraException, OmegaConfBaseException, yaml.YAMLError)

_NOT_IN_STRUCT = re.compile(r"Key '([^']+)' is not in struct(?:\s+full_key: (\S+))?")
_COULD_NOT_OVERRIDE = re.compile(r"Could not override '([^']+)'")
_AMBIGUOUS = re.compile(r"Ambiguous value for argument '([^']+)'")
_NULL_GROUP = "Config group override must be a string"
_MULTIPLE = re.compile(r"Multiple values for (\S+?)\.")


def one_line(problem: Exception, conf: Path, argv: Sequence[str] | None = None) -> str:
    """``key=value: what is wrong; what is allowed``.

    Args:
        problem: as raised; its causes are read too.
        conf: the configuration folder, to list what exists.
        argv: the command line, to name the value; ``sys.argv`` if None.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(problem, OverrideParseException):
        return f"{problem.override}: not an override; expected key=value, such as seq_len=512"
    if isinstance(problem, yaml.MarkedYAMLError):
        return _bad_yaml(problem)
    missing = _missing_config(problem)
    if missing is not None:
        return _missing_line(missing, conf)
    text = "\n".join(str(p) for p in _chain(problem))
    several = _AMBIGUOUS.search(text)
    if several:
        word = several.group(1)
        return f"{word}: several values; -m sweeps over them: python -m suite -m {word}"
    if _NULL_GROUP in text:
        return _null_line(conf, words)
    multiple = _MULTIPLE.search(text)
    if multiple:
        return f"{multiple.group(1)}: given more than once; choose one value, or sweep with -m"
    found = _NOT_IN_STRUCT.search(text)
    if found:
        return _unknown_key(found.group(2) or found.group(1), conf, words)
    refused = _COULD_NOT_OVERRIDE.search(text)
    if refused:
        return _unknown_key(refused.group(1), conf, words)
    return " ".join(line.strip() for line in str(problem).splitlines() if line.strip())


def _bad_yaml(problem: yaml.MarkedYAMLError) -> str:
    mark = problem.problem_mark or problem.context_mark
    where = f"{mark.name}, line {mark.line + 1}" if mark is not None else "a configuration file"
    return f"{where.strip('<> ')}: not YAML: {problem.problem or problem.context}"


def _chain(problem: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while problem is not None and problem not in chain:
        chain.append(problem)
        problem = problem.__cause__ or problem.__context__
    return chain


def _missing_config(problem: Exception) -> str | None:
    for link in _chain(problem):
        if isinstance(link, MissingConfigException) and link.missing_cfg_file:
            return str(link.missing_cfg_file)
    return None


def _missing_line(missing: str, conf: Path) -> str:
    group, _, value = missing.removesuffix(".yaml").rpartition("/")
    there = sorted(p.stem for p in (conf / group).glob("*.yaml"))
    if not group or not there:
        groups = sorted(p.name for p in conf.iterdir() if p.is_dir() and p.name != "hydra")
        return f"{group or value}={value}: no such group; groups are {', '.join(groups)}"
    return f"{group}={value}: no such {group}; expected one of {', '.join(there)}{_near(value, there)}"


def is_composition_error(problem: Exception) -> bool:
    """Whether ``problem`` is about what a person wrote."""
    # Hydra has no error of its own for a group that is null.
    return isinstance(problem, COMPOSITION_ERRORS) or (
        isinstance(problem, ValueError) and _NULL_GROUP in str(problem)
    )


def _null_line(conf: Path, words: list[str]) -> str:
    keys = [w.lstrip("+").partition("=")[0] for w in words if "null" in w.partition("=")[2].split(",")]
    group = next((key for key in keys if (conf / key).is_dir()), None)
    if group is None:
        return "null: a group of the configuration cannot be null"
    return (
        f"{group}=null: expected one of {', '.join(sorted(p.stem for p in (conf / group).glob('*.yaml')))}"
    )


def _unknown_key(key: str, conf: Path, words: list[str]) -> str:
    parent, _, name = key.rpartition(".")
    swept = next((w for w in words if w.partition("=")[0] == parent and "," in w), None)
    if swept:
        first = swept.partition("=")[2].split(",")[-1]
        return (
            f"{key}: not a key of every one of {swept}; list each with its keys in a sweep file, as "
            f"conf/sweep/long_seq.yaml does ('- {first} {key}=…'), or here as "
            f"""'sweep.products=[{{{parent}: [..., "{first} {key}=…"]}}]'"""
        )
    known = _keys_at(parent, conf, words)
    listed = f"; keys{' of ' + parent if parent else ''} are {', '.join(known)}" if known else ""
    value = next((w.partition("=")[2] for w in words if w.lstrip("+~").partition("=")[0] == key), None)
    shown = key if value is None else f"{key}={value}"
    return f"{shown}: no such key{listed}{_near(name, known)}"


def _keys_at(parent: str, conf: Path, words: list[str]) -> list[str]:
    primary = yaml.safe_load((conf / "config.yaml").read_text(encoding="utf-8"))
    if not parent:
        groups = [k for entry in primary["defaults"] if isinstance(entry, dict) for k in entry]
        plain = [k for k in primary if k not in ("defaults", "hydra")]
        return sorted({*plain, *(g for g in groups if "/" not in g)})
    if parent in primary:
        return sorted(primary[parent])
    chosen = [e[parent] for e in primary["defaults"] if isinstance(e, dict) and parent in e]
    chosen += [w.partition("=")[2] for w in words if w.partition("=")[0] == parent]
    path = conf / parent / f"{chosen[-1]}.yaml" if chosen else None
    if path is None or not path.is_file():
        return []
    return sorted(yaml.safe_load(path.read_text(encoding="utf-8")))


def _near(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]}?" if close else ""
