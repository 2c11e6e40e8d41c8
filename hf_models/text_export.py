"""Export of the text half of a model, so that a search by a text alone needs neither torch nor the model's code."""

import hashlib
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hf_models.atomic_files import replacing
from hf_models.encoders import DotProductEncoder, Encoder, PerceptionEncoder, TFCoVREncoder, pooled
from hf_models.query_texts import DESCRIPTION, FORMAT, MOST_BYTES, TOKENIZER, WEIGHTS, ExportedTextEncoder

TOLERANCE = 1e-5
MOST_LENGTH = 512
PROBES = (
    "a vault",
    "Show with 2.5 somersaults, TUCKED!",
    "  two   spaces\tand\na line ",
    'no. 7: "one" (half) #turn; *and* ~another',
    "caf\u00e9 stra\u00dfe \u0130stanbul \ufb01nal \u2014 cafe\u0301",
    "\u4f53\u64cd \U0001f938 \u0441\u0430\u043b\u044c\u0442\u043e",
    "<s> [CLS] <|endoftext|> </s>",
    *(" ".join(["turn"] * count) for count in (8, 18, 29, 60, 600)),
)
"""Texts on which the export must give the model's own vectors, or refuse as it does."""


class TextHalf(nn.Module):
    """From tokens to the vector of a query."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.model, self.encoder = encoder.model, encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """`(1, D)` of `(1, L)`."""
        inputs = {"input_ids": input_ids} | ({} if attention_mask is None else {"attention_mask": attention_mask})
        if isinstance(self.encoder, TFCoVREncoder):
            features: Tensor = self.model.get_query_features(**inputs)
            return features
        return F.normalize(pooled(self.model.get_text_features(**inputs)), dim=-1)


def export_text_half(encoder: Encoder, folder: str | Path) -> str | None:
    """Write the text half of an encoder, where it gives the same vectors.

    Args:
        encoder: Any.
        folder: Gets the files of `hf_models.query_texts`; the last one only where all is well.

    Returns:
        Why nothing was written; None where it was.

    Raises:
        OSError: The files cannot be written.
    """
    folder = Path(folder)
    try:
        import onnx  # noqa: F401 torch's exporter needs it
        import onnxruntime  # noqa: F401

        fields, tokenizer = prepared(encoder)
        contents = {WEIGHTS: as_onnx(encoder, fields), TOKENIZER: tokenizer.encode()}
    except ImportError as error:
        return f"{error.name} is not installed; pip install 'subtle-video[index]'"
    except Exception as error:  # any model may be one that cannot be exported
        return " ".join(f"{type(error).__name__}: {error}".split())[:200]
    fields["sha256"] = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    (folder / DESCRIPTION).unlink(missing_ok=True)
    for name, content in (contents | {DESCRIPTION: json.dumps(fields).encode()}).items():
        with replacing(folder / name) as unfinished:
            unfinished.write_bytes(content)
    reason = difference(encoder, folder)
    if reason is not None:
        for name in (DESCRIPTION, WEIGHTS, TOKENIZER):
            (folder / name).unlink(missing_ok=True)
    return reason


def prepared(encoder: Encoder) -> tuple[dict[str, Any], str]:
    """How a model's texts become tokens: the fields of its description, and its tokenizer as JSON.

    Raises:
        ValueError: They become tokens in a way that is not known here, or it reads none.
    """
    if not isinstance(encoder, DotProductEncoder | TFCoVREncoder) or isinstance(encoder, PerceptionEncoder):
        raise ValueError(f"the texts of a {type(encoder).__name__} cannot be exported")
    longest = encoder.count_tokens("a")[1]
    tokens = encoder.tokens([" ".join(["a"] * 2 * MOST_LENGTH)])
    length = tokens["input_ids"].shape[1]
    if longest is None or not 0 < length <= MOST_LENGTH:
        raise ValueError("the model does not say how long a text may be")
    tokenizer = encoder.processor.tokenizer
    fields = {
        "format": FORMAT,
        "length": int(length),
        "longest": int(longest),
        "number_words": bool(getattr(encoder.processor, "number_words", False)),
        "padding": int(tokenizer.pad_token_id),
        "pads_left": tokenizer.padding_side == "left",
        "reads_mask": "attention_mask" in tokens,
    }
    return fields, tokenizer.backend_tokenizer.to_str()


def as_onnx(encoder: Encoder, fields: dict[str, Any]) -> bytes:
    """The text half as ONNX for a batch of one; adds `dimensions` to the fields.

    Raises:
        ValueError: It is too large.
    """
    device, half = encoder.model.device, TextHalf(encoder).eval()
    names = ["input_ids", *(["attention_mask"] if fields["reads_mask"] else [])]
    example = [torch.ones(1, fields["length"], dtype=torch.int64) for _ in names]
    example[-1][:, fields["length"] // 2 :] = 0 if fields["reads_mask"] else 1
    try:
        half.to("cpu")
        with torch.no_grad(), tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            file = Path(folder, WEIGHTS)
            warnings.simplefilter("ignore")  # of the exporter: what it cannot do is found by the probes
            fields["dimensions"] = half(*example).shape[1]
            torch.onnx.export(
                half, tuple(example), file, input_names=names, output_names=["vector"], dynamo=False, verbose=False
            )
            content = file.read_bytes()
    finally:
        half.to(device)
    if len(content) > MOST_BYTES:
        raise ValueError(f"the text half has more than {MOST_BYTES:,} bytes")
    return content


def difference(encoder: Encoder, folder: Path) -> str | None:
    """Why an export does not stand for its model; None where it does."""
    try:
        exported = ExportedTextEncoder(folder)
        for probe in PROBES:
            ours, theirs = answer(exported, probe), answer(encoder, probe)
            if isinstance(ours, str) or isinstance(theirs, str):
                is_same = isinstance(ours, str) and isinstance(theirs, str) and ours == theirs
            else:
                is_same = ours.shape == theirs.shape and np.abs(ours - theirs).max() <= TOLERANCE
            if not is_same:
                return f"exported, the model gives another vector of the text {probe[:40]!r}"
    except Exception as error:  # of ONNX Runtime
        return " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return None


def answer(encoder: Any, text: str) -> np.ndarray | str:
    """The vector of a text, or why it is refused."""
    try:
        vector: np.ndarray = encoder.query(text=text)
    except ValueError as error:
        return str(error)
    return vector
