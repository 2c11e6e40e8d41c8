"""What is trained beside a frozen model and saved without it: adapters of PEFT, heads over layers."""

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedConfig
from transformers.utils import cached_file

from hf_models.checkpoints import open_whole, opening
from hf_models.encoders.modeling_layer_head import LayerHead, LayerHeadConfig
from hf_models.encoders.protocol import Encoder

if TYPE_CHECKING:
    from peft import PeftModel

PEFT_PREFIX = "base_model.model."
MAY_BE_MISSING: dict[str, Any] = {
    f"_raise_exceptions_for_{what}": False for what in ("missing_entries", "connection_errors", "gated_repo")
}


def add_adapter(model: Any, adapter: str, name_or_path: str) -> None:
    """Add a PEFT adapter to the model that it was trained on.

    Raises:
        ValueError: It was trained on another model, or its weights are not all there.
    """
    check_base_name(read_adapter(adapter).base_model_name_or_path, adapter, name_or_path)
    with opening(adapter, checked=True):
        try:
            model.load_adapter(adapter)
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"the adapter {adapter} does not fit {name_or_path}: {str(error)[:600]}") from None
        check_whole(model.get_adapter_state_dict(), adapter)


def with_adapter(model: Any, adapter: str, *, new: str | None = None, **options: Any) -> "PeftModel":
    """A model with trained adapters as PEFT's model, all of whose weights are in their files.

    Args:
        model: What they were trained on.
        adapter: Their folder or name on the Hub.
        new: A part of the names of weights that may be missing, such as those of a head for other classes.
        options: Of PEFT's `from_pretrained`.

    Raises:
        ValueError: Weights are missing, or a file is damaged.
    """
    from peft import PeftModel, get_peft_model_state_dict

    with opening(adapter, checked=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a new head, and of what is missing, which is said below
        adapted = PeftModel.from_pretrained(model, adapter, **options)
    wanted = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    check_whole((name for name in wanted if new is None or new not in name), adapter)
    return adapted


def read_adapter(adapter: str) -> Any:
    """The configuration of a PEFT adapter.

    Raises:
        ValueError: It is damaged, asks for more than its weights are, or names a module, which PEFT would import.
        OSError: There is no such adapter.
    """
    from peft import PeftConfig

    with opening(adapter):
        config = PeftConfig.from_pretrained(adapter)
        if getattr(config, "megatron_config", None) is not None:
            raise ValueError(
                f"the adapter {adapter} asks PEFT to run the module {config.megatron_core!r} (megatron_config in its "
                "adapter_config.json), which is refused; where you trust it, set megatron_config to null"
            )
    return config


def check_whole(wanted: Iterable[str], adapter: str) -> None:
    """Refuse an adapter of which weights are missing; PEFT would leave them as they start.

    Args:
        wanted: Names of all weights of the adapter.
        adapter: Its folder or name on the Hub.

    Raises:
        ValueError: Some are missing.
    """
    from peft import load_peft_weights

    saved = {name.removeprefix(PEFT_PREFIX) for name in load_peft_weights(adapter, device="cpu")}
    if missing := sorted({name.removeprefix(PEFT_PREFIX) for name in wanted} - saved):
        raise ValueError(
            f"{len(missing)} weights of the adapter {adapter} are missing, such as {', '.join(missing[:3])}; it was "
            "not saved to its end: copy it again, or train it again"
        )


def check_base_name(base: str | None, adapter: str, name_or_path: str) -> None:
    """Refuse an adapter of another model.

    Args:
        base: The model that it was trained on, as its configuration says; None where it does not say.
        adapter: The adapter's folder or name on the Hub.
        name_or_path: The model to add it to.

    Raises:
        ValueError: It was trained on another model.
    """
    if base is not None and not isinstance(base, str):
        raise ValueError(f"the adapter {adapter} names no model as its base but {base!r}; copy it again")
    if base and base != name_or_path and Path(base).resolve() != Path(name_or_path).resolve():
        raise ValueError(
            f"the adapter {adapter} was trained on {base}, not on {name_or_path}; load {base} with it, or, where the "
            "two are the same model, name this one as base_model_name_or_path in its adapter_config.json (config.json "
            "of a head)"
        )


def load_head(adapter: str, name_or_path: str, kind: type[Encoder]) -> LayerHead | None:
    """The head over layers that an adapter's folder holds; None where it holds another adapter.

    Raises:
        ValueError: It was trained on another model, its weights are not all there, or the encoder takes none.
    """
    if cached_file(adapter, "config.json", **MAY_BE_MISSING) is None:
        return None
    with opening(adapter, checked=True):
        config = PreTrainedConfig.get_config_dict(adapter)[0]
    if config.get("model_type") != LayerHeadConfig.model_type:
        return None
    base = config.get("base_model_name_or_path")
    check_base_name(base, adapter, name_or_path)
    if not getattr(kind, "has_layers", False):
        raise ValueError(
            f"{adapter} is a head over the layers of a language model, and {name_or_path} embeds otherwise; "
            f"load {base} with it"
        )
    head: LayerHead = open_whole(LayerHead, adapter, cure="train it again")
    return head


def is_adapter(name_or_path: str) -> bool:
    """Whether a folder holds adapters of PEFT."""
    return (Path(name_or_path) / "adapter_config.json").is_file()


def base_of(adapter: str) -> str:
    """The model that adapters of PEFT were trained on, as they name it."""
    return str(read_adapter(adapter).base_model_name_or_path)
