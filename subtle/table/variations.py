"""Named variations of stage 1 and stage 2, and the configurations that they stand for."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from subtle.options import nearest, settings_of
from subtle.run.model_folders import WEIGHTS
from subtle.run.shared_config import DataConfig, EncoderConfig
from subtle.table.rows import IGNORED

SHUFFLED = ", frames shuffled"  # what the name of a row ends with where its model was measured so
OF_ALL = {*DataConfig.__dataclass_fields__, *IGNORED, "seed", "mixed_precision"}


@dataclass(frozen=True)
class Variation:
    """What one row of an ablation changes.

    Attributes:
        name: in the table.
        stage1: options of stage 1; where there are any, it is trained for this variation.
        stage2: options of stage 2, and `shuffle_frames`.
        against: the variation that this one is compared with; None: with none.
    """

    name: str
    stage1: dict[str, Any] = field(default_factory=dict)
    stage2: dict[str, Any] = field(default_factory=dict)
    against: str | None = None

    @property
    def changes(self) -> str:
        """The options that it changes, as the table says it."""
        given = self.stage2 | {f"stage 1 {name}": value for name, value in self.stage1.items()}
        short = {name: Path(value).name if name.endswith("_model") else value for name, value in given.items()}
        return ", ".join(f"{name} {value}" for name, value in short.items())


def read_variations(given: Mapping[str, Any], stages: Mapping[str, type]) -> dict[str, Variation]:
    """Variations by name, from `{name: {option: value, ..., stage1: {option: value}, against: name}}`.

    A variation is compared with the first one unless it names another; `against: null` compares it with none.

    Args:
        given: the variations.
        stages: the configuration classes of `stage1` and `stage2`.

    Raises:
        ValueError: There is none, or an option is unknown, has another kind of value, or must be the same for all.
    """
    if not given:
        raise ValueError("there is no variation; give --variations '{name: {option: value}}', or a YAML file with them")
    names, found = [str(name) for name in given], {}
    if len(set(names)) < len(names) or any(name.endswith(SHUFFLED) for name in names):
        raise ValueError(f"variations need different names, without {SHUFFLED!r} at their end, not {', '.join(names)}")
    for name, options in zip(names, given.values(), strict=True):
        if not isinstance(options, Mapping | None):
            raise ValueError(f"the variation {name!r} is {options!r}; write {{option: value}}, or {{}} for no change")
        rest = dict(options or {})
        stage1 = rest.pop("stage1", None) or {}
        if not isinstance(stage1, Mapping):
            raise ValueError(f"stage1 of the variation {name!r} is {stage1!r}; write {{option: value}}")
        against = rest.pop("against", None if name == names[0] else names[0])
        against = None if against is None else str(against)
        if against is not None and (against not in names or against == name):
            raise ValueError(f"the variation {name!r} is against {against!r}; name another of {', '.join(names)}")
        read1 = read_options(name, stage1, "stage1", stages)
        if read1 and "vision_model" in rest:
            raise ValueError(f"the variation {name!r} trains stage 1 and names a vision_model; leave one of them out")
        found[name] = Variation(name, read1, read_options(name, rest, "stage2", stages), against)
    return found


def read_options(name: str, options: Mapping[str, Any], stage: str, stages: Mapping[str, type]) -> dict[str, Any]:
    """The options of a variation as their configuration class reads them."""
    settings, read = settings_of(stages[stage]), {}
    for key, value in options.items():
        if key not in settings:
            raise ValueError(f"the variation {name!r}: {stage}.py has no option {key!r}{nearest(key, settings)}")
        if key in OF_ALL:
            raise ValueError(
                f"the variation {name!r} changes {key}, which must be the same for all; leave it out and give "
                "--seeds, or the data, as options of all"
            )
        try:
            read[key] = settings[key].read(value)
        except ValueError as error:
            raise ValueError(f"the variation {name!r}: {key}: {error}") from error
    return read


def config_key(config: Any, *, without: tuple[str, ...] = ()) -> str:
    """A hash of the options that decide the outcome, but the seed."""
    ignored = {*IGNORED, "seed", *without}
    values = {name: value for name, value in asdict(config).items() if name not in ignored}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def row_name(variation: str, seed: int, shuffled: bool) -> str:
    """The row of a variation with one seed.

    Example:
        >>> row_name("beta 0.3", 4, shuffled=True)
        'beta 0.3, seed 4, frames shuffled'
    """
    return f"{variation}, seed {seed}{SHUFFLED * shuffled}"


@dataclass(frozen=True)
class VariationRun:
    """A row: one variation with one seed; what is trained, and where.

    Attributes:
        variation: what it changes.
        seed: of stage 2.
        stage1: the configuration that stage 1 is trained with; None: it is there.
        stage2: the configuration that stage 2 is trained with, with `shuffle_frames`.
        clips_from: another folder of embeddings whose clips are encoded alike, because only texts differ; or None.
        shuffled: whether it is measured on shuffled frames.
    """

    variation: Variation
    seed: int
    stage1: Any
    stage2: Any
    clips_from: str | None = None
    shuffled: bool = False

    @property
    def name(self) -> str:
        """In the folder of rows."""
        return row_name(self.variation.name, self.seed, self.shuffled)

    @property
    def config(self) -> dict[str, Any]:
        """What decides its figures, without folders of this machine; where stage 1 is trained, with its options."""
        config = asdict(self.stage2)
        if self.stage1:
            config |= {"vision_model": "stage 1", "stage1": portable_options(asdict(self.stage1))}
        return portable_options(config)


def portable_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that decide the weights; models that ship are named without their folder."""
    kept = {name: value for name, value in options.items() if name not in {*IGNORED, "data_dir", "video_dir"}}
    shipped = {str(folder): folder.name for folder in WEIGHTS.iterdir()}
    return {name: shipped.get(value, value) if isinstance(value, str) else value for name, value in kept.items()}


def plan_run(
    variation: Variation, seed: int, base1: Any, base2: Any, output_dir: Path, *, each_seed: bool
) -> VariationRun:
    """The configurations of a variation with one seed; equal ones share their folders, whatever their variation is.

    Args:
        variation: what changes.
        seed: of stage 2, and of stage 1 with `each_seed`.
        base1: the configuration of stage 1 that variations start from.
        base2: that of stage 2, with `shuffle_frames`.
        output_dir: where everything goes.
        each_seed: whether stage 1 is trained with each seed too.
    """
    stage1 = None
    changes = dict(variation.stage2)
    embeddings = Path(base2.embeddings)
    if variation.stage1 or (each_seed and "vision_model" not in changes):
        stage1 = replace(base1, **variation.stage1, seed=seed if each_seed else base1.seed)
        stage1.output_dir = str(output_dir / "stage1" / config_key(stage1) / f"seed-{stage1.seed}")
        changes["vision_model"] = str(Path(stage1.output_dir) / "model")
    stage2 = replace(base2, **changes, seed=seed)
    read_by_encoders = (*EncoderConfig.__dataclass_fields__, "shuffle_frames")
    if any(getattr(stage2, name) != getattr(base2, name) for name in read_by_encoders):
        kept = {*read_by_encoders, *DataConfig.__dataclass_fields__}
        others = tuple(name for name in asdict(stage2) if name not in kept)
        embeddings = output_dir / "embeddings" / config_key(stage2, without=others)
    stage2.embeddings = str(embeddings)
    stage2.output_dir = str(output_dir / "stage2" / config_key(stage2) / f"seed-{seed}")
    of_clips = [name for name in read_by_encoders if name not in {"text_model", "text_model_class", "number_words"}]
    is_same = all(getattr(stage2, name) == getattr(base2, name) for name in of_clips)
    return VariationRun(variation, seed, stage1, stage2, base2.embeddings if is_same else None)
