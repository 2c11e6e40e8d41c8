"""Texts of queries without torch: what a model reads, and encoding by the text half of a model that was exported.

Importing torch and a model's code takes seconds, more than all the rest of a search. So the text half of a model can be
written once as ONNX (`hf_models.text_export`), with its tokenizer and how texts are prepared:

    text.onnx         from `input_ids` and, where the model reads it, `attention_mask`, `(1, L)` int64, to `(1, D)`
    tokenizer.json    of the library tokenizers
    text.json         see `FIELDS`, and `sha256` of the other two files
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from hf_models.tfcovr.modification_texts import normalize_modification

FORMAT = 1
WEIGHTS, TOKENIZER, DESCRIPTION = "text.onnx", "tokenizer.json", "text.json"
FIELDS = {
    "format": int,
    "dimensions": int,  # D
    "length": int,  # L; shorter texts are padded, longer ones end earlier
    "longest": int,  # tokens of a text that is not refused
    "number_words": bool,  # whether texts are prepared by `normalize_modification`
    "padding": int,
    "pads_left": bool,
    "reads_mask": bool,
}
MOST_BYTES = 2**30
MOST_TOKENS = 4096
BRANCHES = {"If", "Loop", "Scan"}
"""What no text half needs, and what could run for ever."""


def check_text(text: str) -> None:
    """Refuse a text without words.

    Raises:
        ValueError: It is one.
    """
    if not text.strip():
        raise ValueError("the text is empty; write what to look for, or leave it out")


def check_length(tokens: int, longest: int | None) -> None:
    """Refuse a text that a model would not read to its end.

    Raises:
        ValueError: It has more tokens than `longest`.
    """
    if longest is not None and tokens > longest:
        raise ValueError(f"the text has {tokens} tokens and the model reads {longest}; shorten it")


class ExportedTextEncoder:
    """The text half of a model, run by ONNX Runtime; it takes no code from the files.

    Args:
        folder: What `hf_models.text_export.export_text_half` wrote on this machine. A program of somebody else could
            take any time and memory, though it reads no other file.

    Raises:
        ImportError: onnx or onnxruntime is not installed.
        OSError: A file is missing.
        ValueError: The files are damaged, do not belong together, or are of another version.
    """

    def __init__(self, folder: str | Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        self.fields = _read_description(Path(folder))
        weights, tokenizer = (_read_checked(Path(folder, name), self.fields) for name in (WEIGHTS, TOKENIZER))
        _check_program(weights, Path(folder, WEIGHTS))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what fails is raised
        try:
            self.session = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
            self.tokenizer = Tokenizer.from_str(tokenizer.decode())
        except Exception as error:  # both libraries raise types of their own
            raise ValueError(f"{folder} cannot be read: {error}") from error
        outputs = [output.type for output in self.session.get_outputs()]
        if outputs != ["tensor(float)"]:
            raise ValueError(f"{folder}: {WEIGHTS} gives {outputs}, not one float32 vector")
        self.tokenizer.no_padding()

    def query(self, text: str) -> np.ndarray:
        """Embed a text, as `Encoder.query` does.

        Returns:
            `(D,)` float32.

        Raises:
            ValueError: The text is empty or too long.
            RuntimeError: The program does not give a finite vector.
        """
        check_text(text)
        fields = self.fields
        if fields["number_words"]:
            text = normalize_modification(text)
        self.tokenizer.no_truncation()
        check_length(len(self.tokenizer.encode(text).ids), fields["longest"])
        self.tokenizer.enable_truncation(fields["length"])
        tokens = self.tokenizer.encode(text).ids
        inputs = {"input_ids": self.padded(tokens, fields["padding"])}
        if fields["reads_mask"]:
            inputs["attention_mask"] = self.padded([1] * len(tokens), 0)
        try:
            vectors: np.ndarray = self.session.run(None, inputs)[0]
        except Exception as error:  # of ONNX Runtime's own types
            raise RuntimeError(f"{WEIGHTS} cannot be run: {error}") from error
        if vectors.shape != (1, fields["dimensions"]) or not np.isfinite(vectors).all():
            raise RuntimeError(f"{WEIGHTS} gives {vectors.shape}, not {fields['dimensions']} finite numbers")
        vector: np.ndarray = vectors[0]
        return vector

    def padded(self, values: list[int], padding: int) -> np.ndarray:
        """`(1, L)` int64."""
        rest = [padding] * (self.fields["length"] - len(values))
        return np.array([rest + values if self.fields["pads_left"] else values + rest], np.int64)


def _read_description(folder: Path) -> dict[str, Any]:
    fields = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    kinds = FIELDS | {"sha256": dict}
    if not isinstance(fields, dict) or any(type(fields.get(name)) is not kind for name, kind in kinds.items()):
        raise ValueError(f"{folder / DESCRIPTION} is damaged")
    if fields["format"] != FORMAT or not 0 < fields["length"] <= MOST_TOKENS:
        raise ValueError(f"{folder / DESCRIPTION} is of another version")
    return fields


def _read_checked(path: Path, fields: dict[str, Any]) -> bytes:
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} is larger than {MOST_BYTES:,} bytes")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != fields["sha256"].get(path.name):
        raise ValueError(f"{path} is not the file that was written")
    return content


def _check_program(content: bytes, path: Path) -> None:
    # No text half names other files, branches or loops, or needs operators of others.
    import onnx

    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # of protobuf's own types
        raise ValueError(f"{path} cannot be read: {error}") from error
    graphs = [model.graph, *model.functions]
    tensors: list[Any] = []
    while graphs:
        graph = graphs.pop()
        if isinstance(graph, onnx.GraphProto):
            tensors += graph.initializer
            tensors += [part for sparse in graph.sparse_initializer for part in (sparse.values, sparse.indices)]
        for node in graph.node:
            if node.op_type in BRANCHES or node.domain not in {"", "ai.onnx"}:
                raise ValueError(f"{path} uses {node.domain or 'ai.onnx'}.{node.op_type}, which no text half needs")
            for attribute in node.attribute:
                graphs += [attribute.g, *attribute.graphs]
                tensors += [attribute.t, *attribute.tensors]
                for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                    tensors += [sparse.values, sparse.indices]
    if any(tensor.external_data or tensor.data_location for tensor in tensors):
        raise ValueError(f"{path} names other files")


def files_of_model(name_or_path: str) -> dict[str, list[int]] | None:
    """Size and time of each file of a model folder, by which an unchanged one is recognized; None for a Hub name."""
    folder = Path(name_or_path)
    if not folder.is_dir():
        return None
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): [path.stat().st_size, path.stat().st_mtime_ns]
        for path in files
        if not path.name.startswith(".") and path.suffix in {".json", ".safetensors", ".bin", ".txt", ".model"}
    }


def cached_commit(name: str) -> str | None:
    """The commit of a model of the Hub that is in the cache; None where there is none."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, "config.json") if re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) else None
    return Path(found).parent.name if isinstance(found, str) else None
