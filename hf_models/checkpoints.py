"""Weights of checkpoints that others made: read without running code (`weights_only=True`) and measured."""

import json
import logging
import math
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import MODEL_MAPPING, AutoConfig, PreTrainedConfig

MAX_NAME_CHARACTERS = 300
MAX_GROWTH = 4  # how much larger than their file weights may be, since tied ones stand in it once
ASKED_GROWTH = 2  # how many times the weights of its files the model of a folder may have: heads may be new
SLACK_WEIGHTS = 1 << 24  # and how many more it and its buffers may have
MOST_MODULES = 10_000  # names, or characters of a pattern, in the configuration of an adapter
MOST_LAYERS, MOST_LABELS = 200, 100_000  # that are built before they are compared
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


Configuration = TypeVar("Configuration", bound=PreTrainedConfig)
Model = TypeVar("Model", bound=nn.Module)


def read_checkpoint(path: Path, *, skip: str | None = None) -> dict[str, Tensor]:
    """Read the weights of a checkpoint without running any code that it may hold.

    Args:
        path: Of torch or safetensors; torch's may keep the weights under `state_dict` or `model`, as
            mmaction, Lightning and the TVR baselines do.
        skip: Names that are left out before they are looked at, as a regular expression of the whole name.

    Returns:
        Names and weights, floating-point and on the CPU.

    Raises:
        ValueError: If it cannot be read that way, or describes more than stands in it.
    """
    if not path.is_file():
        raise ValueError(f"there is no checkpoint {str(path)!r}; name a file of torch or safetensors")
    try:
        loaded = load_file(path) if path.suffix == ".safetensors" else _load_torch(path)
    except Exception as error:  # torch and safetensors fail in many ways on hostile files
        # torch says in many words how to run what a file asks for.
        asked = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"it asks for {asked[1]}" if asked else str(error).rpartition("WeightsUnpickler error: ")[2]
        raise ValueError(
            f"{str(path)!r} does not hold plain weights, and anything else in it is not run "
            f"({reason[:300] or type(error).__name__}); where you trust it, save its state_dict alone"
        ) from None
    found = [loaded[key] for key in ("state_dict", "model") if isinstance(loaded, dict) and key in loaded]
    weights = found[0] if found else loaded
    if skip is not None and isinstance(weights, dict):
        weights = {name: weight for name, weight in weights.items() if not re.fullmatch(skip, str(name))}
    if not isinstance(weights, dict) or not weights or not all(map(torch.is_tensor, weights.values())):
        raise ValueError(f"{str(path)!r} holds no state_dict of tensors")
    _check_weights(weights, path)
    return weights


def make_config(config_class: type[Configuration], **values: Any) -> Configuration:
    """A configuration of sizes that were read from weights.

    Raises:
        ValueError: If they do not go together.
    """
    try:
        return config_class(**values)
    except StrictDataclassError as error:
        raise ValueError(f"the sizes do not go together: {error.__cause__ or error}") from None


def load_weights(model_class: type[Model], config: PreTrainedConfig, weights: dict[str, Tensor]) -> Model:
    """Build a model and give it weights; it is built only if each of its weights is there, in its shape.

    Returns:
        The model, float32, in evaluation mode.

    Raises:
        ValueError: If a weight is missing, too many or of another shape.
    """
    try:
        with torch.device("meta"):  # without memory, since the sizes may be those of a hostile file
            model_class(config).load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise ValueError(f"the checkpoint does not fit: {str(error)[:2000]}") from None
    model = model_class(config)
    model.load_state_dict(weights)
    model.eval()
    return model


@contextmanager
def opening(name_or_path: str | Path, *, checked: bool = False) -> Iterator[None]:
    """Open a model's folder: refuse sizes that its weights do not have, and give one error for whatever is damaged.

    A configuration is a stranger's program for what to allocate: before any of it is built, what it asks for is
    compared with the headers of the folder's weights. Names on the Hub are not compared.

    Args:
        name_or_path: What is opened inside the context: a model, or an adapter of PEFT.
        checked: Whether its sizes were compared before.

    Raises:
        ValueError: A file of the folder is damaged, or its configuration asks for another model than its weights are.
        ImportError: A package is missing.
        OSError: There is no such model.

    Example:
        >>> with opening("a/model"):
        ...     {"hidden_size": 8}["num_layers"]
        Traceback (most recent call last):
            ...
        ValueError: a/model cannot be opened as a model (KeyError: 'num_layers'); copy it again, or save it anew with...
    """
    try:
        if not checked and (Path(name_or_path) / "config.json").is_file():
            files = ((file.name, file.stat()) for file in sorted(Path(name_or_path).iterdir()))
            _check_shapes(Path(name_or_path), tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in files))
        if not checked and (Path(name_or_path) / "adapter_config.json").is_file():
            _check_adapter(Path(name_or_path))
        yield
    except (OSError, ImportError):
        raise  # there is no such model, or a package is missing, and the message says so
    except BaseException as error:  # transformers fails in as many ways as there are fields, and tokenizers panics
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise  # an interrupt
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        if type(error) is ValueError and frame.f_globals.get("__name__", "").startswith("hf_models"):
            if str(name_or_path) in str(error):
                raise  # one of ours, which says what is wrong
            raise ValueError(f"{name_or_path}: {error}") from error
        raise ValueError(not_opened(name_or_path, error)) from error


def open_whole(
    model_class: Any,
    name_or_path: str | Path,
    *,
    part: Callable[[Any], nn.Module] = lambda model: model,
    unread: str = "(?!)",
    cure: str = "an earlier version of the code saved it, or it is not whole: train it again, or copy it again",
    **options: Any,
) -> Any:
    """A model all of whose weights are in its files; transformers would make those that are not at random.

    Args:
        model_class: Of transformers, or ours.
        name_or_path: A folder or a name on the Hub.
        part: What of the model is used, as a function of it; the rest may be missing.
        unread: A regular expression of names in that part that may be missing, too.
        cure: What to say where weights are missing or of another shape.
        options: Of `from_pretrained`.

    Raises:
        ValueError: Weights are missing or of another shape, or the folder is damaged.
        OSError: There is no such model.
    """
    with opening(name_or_path), _without_report():
        model, report = model_class.from_pretrained(
            name_or_path, output_loading_info=True, ignore_mismatched_sizes=True, **options
        )
        read = {id(weight) for name, weight in weights_of(part(model)) if not re.search(unread, name)}
        absent = {name for name, weight in weights_of(model) if name in report["missing_keys"] and id(weight) in read}
        if lost := sorted(absent | {name for name, *_ in report["mismatched_keys"]}):
            such = ", ".join(lost[:3])
            raise ValueError(f"{len(lost)} weights of {name_or_path} are missing or do not fit, such as {such}; {cure}")
    return model


@contextmanager
def _without_report() -> Iterator[None]:
    """Without transformers' table of missing weights, which also names those of a language head that nobody reads."""
    logger = logging.getLogger("transformers.modeling_utils")

    def is_no_report(record: logging.LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()

    logger.addFilter(is_no_report)
    try:
        yield
    finally:
        logger.removeFilter(is_no_report)


def weights_of(model: nn.Module) -> Iterable[tuple[str, Tensor]]:
    """The names of weights and buffers as they are saved, and the tensors themselves."""
    return model.state_dict(keep_vars=True).items()


def not_opened(name_or_path: str | Path, error: BaseException) -> str:
    """What to say of a model that a library failed to open."""
    cause = " ".join(str(error).split())[:300]
    return (
        f"{name_or_path} cannot be opened as a model ({type(error).__name__}: {cause}); copy it again, or save it anew "
        "with `save_pretrained`"
    )


@lru_cache(maxsize=64)
def _check_shapes(folder: Path, files: tuple[tuple[str | int, ...], ...]) -> None:  # noqa: ARG001 - until one changes
    # What a configuration asks for is compared with the shapes in the folder's weights.
    shapes = _shapes_in(folder)
    if not shapes:
        return
    fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    widest = max(max(shape, default=0) for shape in shapes.values())
    for name, value in numbers_in(fields):
        most = max(MOST_LAYERS, len(shapes)) if re.search("layer|depth|block", name) else max(MOST_LABELS, widest)
        if value > most and re.search("layer|depth|block|num_labels", name):
            raise ValueError(
                f"the configuration of {folder} asks for {name}={value:,}, and its weights have {len(shapes):,} "
                f"tensors of at most {widest:,} rows; copy it again, or save it anew"
            )
    try:
        config = AutoConfig.from_pretrained(folder)
    except (OSError, ValueError):
        return  # of another library, or one whose opening says more
    saved = [getattr(transformers, name) for name in config.architectures or () if hasattr(transformers, name)]
    model_class: Any = saved[0] if saved else MODEL_MAPPING.get(type(config), None)
    if model_class is None:
        return
    with torch.device("meta"):  # without memory
        model = model_class(config)
    asked = sum(weight.numel() for weight in model.parameters())
    buffers = sum(buffer.numel() for buffer in model.buffers())
    held = sum(map(math.prod, shapes.values()))
    if max(asked, buffers) > ASKED_GROWTH * held + SLACK_WEIGHTS:
        raise ValueError(
            f"the configuration of {folder} asks for {max(asked, buffers):,} weights, and its files hold {held:,}; "
            "copy it again, or save it anew"
        )
    _check_unread(folder, model, set(shapes))


def _check_adapter(folder: Path) -> None:
    # PEFT makes what the numbers of a configuration ask for before it reads the weights.
    shapes = _shapes_in(folder, "adapter_model")
    if not shapes:
        return  # PEFT says that there are none
    most = max(len(shapes), *(max(shape, default=0) for shape in shapes.values()))
    rank = max((min(shape) for shape in shapes.values() if len(shape) > 1), default=0)
    fields = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    for name, value in fields.items():  # PEFT compares each with the name of each module, as a pattern
        if "modules" in name and isinstance(value, str | list) and len(value) > MOST_MODULES:
            raise ValueError(f"the configuration of {folder} has {len(value):,} {name}; copy it again, or save it anew")
    found = [("r", value) for _, value in numbers_in(fields.get("rank_pattern"))]
    for name, value in [*found, *numbers_in(fields)]:
        if "alpha" not in name and value > (ASKED_GROWTH * rank if name == "r" else most):
            raise ValueError(
                f"the configuration of {folder} asks for {name}={value:,}, and its weights have {len(shapes):,} "
                f"tensors of at most {most:,} rows and rank {rank:,}; copy it again, or save it anew"
            )


def _check_unread(folder: Path, model: nn.Module, names: set[str]) -> None:
    # With weights of layers that its configuration leaves out a model would load, and compute something else.
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    ignored = getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()
    modules = {name.removeprefix(prefix): module for name, module in model.named_modules()}
    for name in sorted(names):
        for number in re.finditer(r"\.\d+(?=\.)", name):
            layers, layer = (part.removeprefix(prefix) for part in (name[: number.start()], name[: number.end()]))
            is_left_out = isinstance(modules.get(layers), nn.ModuleList) and layer not in modules
            if is_left_out and not any(re.search(pattern, name) for pattern in ignored):
                raise ValueError(
                    f"the weights of {folder} have {layer}, which its configuration leaves out; copy it again, or save "
                    "it anew"
                )


def _shapes_in(folder: Path, stem: str = "model") -> dict[str, tuple[int, ...]]:
    """Name -> shape of each weight in a folder's files of safetensors, from their headers; of torch, where it has none.

    Raises:
        ValueError: A file of torch describes more than stands in it.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(folder.glob(f"{stem}*.safetensors")):
        with safe_open(path, "pt") as file:
            shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    for path in () if shapes else sorted(folder.glob(f"{'pytorch_' * (stem == 'model')}{stem}*.bin")):
        weights = {name: weight for name, weight in _load_torch(path).items() if torch.is_tensor(weight)}
        _check_described(weights.values(), path)
        shapes |= {name: tuple(weight.shape) for name, weight in weights.items()}
    return shapes


def numbers_in(value: Any, name: str = "") -> Iterator[tuple[str, int]]:
    """The whole numbers in JSON.

    Yields:
        The name of the field that holds it, and the number.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            yield from numbers_in(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from numbers_in(item, name)
    elif isinstance(value, int):
        yield name, value


def renamed(name: str, rules: Iterable[tuple[str, str]]) -> str:
    """The name of a weight after each rule: a regular expression, and what takes the place of what it finds.

    Example:
        >>> renamed("module.blocks.3.bias", [("^module[.]", ""), ("^blocks[.]", "layers.")])
        'layers.3.bias'
    """
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name


def size_of(weights: dict[str, Tensor], name: str, dimension: int, num_dimensions: int) -> int:
    """How large a weight is along a dimension, which tells a size of the model.

    Raises:
        ValueError: If the weight is missing, empty or of another number of dimensions.

    Example:
        >>> size_of({"a": torch.zeros(3, 5)}, "a", 1, 2)
        5
    """
    if name not in weights:
        raise ValueError(f"the checkpoint lacks {name}")
    if weights[name].ndim != num_dimensions:
        raise ValueError(f"{name} has shape {tuple(weights[name].shape)}, not {num_dimensions} dimensions")
    return weights[name].shape[dimension]


def _check_weights(weights: dict[Any, Tensor], path: Path) -> None:
    for name, weight in weights.items():
        if not isinstance(name, str) or len(name) > MAX_NAME_CHARACTERS:
            raise ValueError(f"{str(path)!r} names a weight {str(name)[:40]!r}; names are short texts")
        is_plain = weight.layout == torch.strided and weight.device.type == "cpu" and weight.dtype in DTYPES
        if not is_plain or not weight.numel():
            raise ValueError(
                f"{name!r} of {str(path)!r} is {weight.dtype} ({weight.layout}) of shape {tuple(weight.shape)} on "
                f"{weight.device}; weights are dense floating-point numbers on the CPU"
            )
    _check_described(weights.values(), path)


def _check_described(weights: Iterable[Tensor], path: Path) -> None:
    described, held = sum(weight.nbytes for weight in weights), path.stat().st_size
    if described > MAX_GROWTH * held:
        raise ValueError(
            f"{str(path)!r} has {held:,} bytes but describes weights of {described:,}; it is damaged or hostile"
        )


def _load_torch(path: Path) -> Any:
    with path.open("rb") as file:
        is_archive = file.read(4) == b"PK\x03\x04"  # what torch goes by
    return torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)
