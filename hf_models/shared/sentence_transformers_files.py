"""The files by which sentence-transformers loads a saved folder: what embeds which input, and how to compare."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TRANSFORMER = "sentence_transformers.base.modules.transformer.Transformer"
POOLING = "sentence_transformers.sentence_transformer.modules.pooling.Pooling"


def write_sentence_transformers_files(
    folder: str | os.PathLike[str],
    methods: Mapping[str, str],
    *,
    mean_of: int | None = None,
    output: str | None = None,
    processing: Mapping[str, Any] | None = None,
) -> None:
    """Make a saved model one that `SentenceTransformer(folder, trust_remote_code=True)` loads.

    The folder also needs the processor. Settings that sentence-transformers has written there stay: prompts, the
    similarity and the like.

    Args:
        folder: What `save_pretrained` of a model writes to.
        methods: What the model embeds ("text", "video", "text+video") -> its method that does, which gives `(B, D)`.
        mean_of: Give the mean of the `last_hidden_state` that the methods give, of this size, in place of an embedding.
        output: Which output of the methods is the embedding, where they give several.
        processing: What sentence-transformers calls the processor with: "text" or "video" -> keywords.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_sentence_transformers_files(folder, {"text": "get_text_features"})
        ...     sorted(path.name for path in Path(folder).iterdir())
        ['config_sentence_transformers.json', 'modules.json', 'sentence_bert_config.json']
    """
    folder = Path(folder)
    output = output if mean_of is None else "last_hidden_state"
    modules: list[dict[str, Any]] = [{"idx": 0, "name": "0", "path": "", "type": TRANSFORMER}]
    module: dict[str, Any] = {
        "transformer_task": "feature-extraction",
        "modality_config": {
            modality: {"method": method, "method_output_name": output} for modality, method in methods.items()
        },
        "module_output_name": "sentence_embedding" if mean_of is None else "token_embeddings",
    }
    if processing is not None:
        module["processing_kwargs"] = processing
    if mean_of is not None:
        modules.append({"idx": 1, "name": "1", "path": "1_Pooling", "type": POOLING})
        (folder / "1_Pooling").mkdir(exist_ok=True)
        write_indented_json(folder / "1_Pooling/config.json", {"embedding_dimension": mean_of, "pooling_mode": "mean"})
    write_indented_json(folder / "sentence_bert_config.json", module)
    settings = folder / "config_sentence_transformers.json"
    if not settings.exists():
        needs = {"sentence-transformers": ">=6"}
        write_indented_json(
            settings, {"model_type": "SentenceTransformer", "similarity_fn_name": "cosine", "requirements": needs}
        )
    write_indented_json(folder / "modules.json", modules)


def write_indented_json(path: Path, content: Any) -> None:
    """Write JSON as people read it."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
