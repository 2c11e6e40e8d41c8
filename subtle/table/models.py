"""Any model that a row of a table names: an encoder, adapters on the model that they name, or an AIM with its CLIP."""

from pathlib import Path
from typing import Any

import torch
from peft import PeftConfig

from hf_models.encoders import load_encoder
from subtle.run.model_folders import check_model_folder
from subtle.table.aim import is_adapter, is_aim, load_aim


def load_model(
    name_or_path: str,
    device: torch.device | str = "cpu",
    *,
    aim_text: str | None = None,
    trust_remote_code: bool = False,
) -> Any:
    """An encoder that `subtle.table.embedding` takes.

    Args:
        name_or_path: a folder or a name on the Hub: of a model, of AIM, or of adapters.
        device: where it runs.
        aim_text: the CLIP that an AIM was built on, whose texts it takes; None: an AIM reads no text.
        trust_remote_code: run the code that the folder or repository holds.

    Raises:
        ValueError: the model cannot be used; see `load_encoder` and `load_aim`.
        SystemExit: a folder holds no model.
    """
    if is_aim(name_or_path):
        return load_aim(name_or_path, aim_text, device)
    if is_adapter(name_or_path):
        base = str(PeftConfig.from_pretrained(name_or_path).base_model_name_or_path)
        return load_encoder(base, device, adapter=name_or_path, trust_remote_code=trust_remote_code)
    if not (Path(name_or_path) / "modules.json").is_file():  # a model of sentence-transformers may have no config.json
        check_model_folder(name_or_path)
    return load_encoder(name_or_path, device, trust_remote_code=trust_remote_code)
