"""Embeddings of clips as TF-CoVR's authors publish them, by clip id, for which no video is needed.

* A pickle, or several one after another in a file, of `{clip id: tensor}`: AIM, 12 frames, `(768,)`.
* A folder of files `<clip id>.pth`, a tensor each: AIM `(768,)`; CLIP's ResNet-50 `(frames, 1024)`, whose mean over
  frames stands for the clip; BLIP-2 `(frames, 32, 256)`, the mean over query tokens and frames.

Neither runs code: a pickle may name what makes tensors and nothing else, and torch reads weights alone.
"""

import hashlib
import io
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hf_datasets.sources.pickle_reading import WORDS, interpret_pickles


def _storage(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _tensor(storage: Any, offset: int, size: Sequence[int], stride: Sequence[int], *_: object) -> Tensor:
    data = storage._untyped_storage  # as torch itself reads it: the public name warns
    if math.prod(size) > data.nbytes():
        raise ValueError(f"a tensor of shape {tuple(size)} in {data.nbytes():,} bytes")
    return torch.tensor([], dtype=storage.dtype).set_(data, offset, tuple(size), tuple(stride))


TENSOR_WORDS = {
    "collections.OrderedDict": WORDS["collections.OrderedDict"],
    "torch.storage._load_from_bytes": _storage,
    "torch._utils._rebuild_tensor_v2": _tensor,
}
"""All names that a pickle of tensors may use, and what stands for them."""


def read_embeddings(path: Path | str) -> tuple[dict[str, Tensor], str]:
    """Read a file or a folder of released embeddings.

    Args:
        path: See above.

    Returns:
        Clip id -> embedding `(size,)`, float32, in the order of the files; and the SHA-256 of what was read.

    Raises:
        FileNotFoundError: There is nothing.
        ValueError: A file is not of tensors, is damaged or ends too early; an id has two embeddings that differ; they
            have several sizes, or values that are not finite.

    Example:
        >>> import pickle, tempfile
        >>> path = Path(tempfile.mkdtemp()) / "embeddings.pkl"
        >>> _ = path.write_bytes(pickle.dumps({"a": torch.tensor([1.0, 2.0])}) + pickle.dumps({"b": torch.ones(3, 2)}))
        >>> read_embeddings(path)[0]
        {'a': tensor([1., 2.]), 'b': tensor([1., 1.])}
    """
    path, digest = Path(path), hashlib.sha256()
    found: dict[str, Tensor] = {}
    other: list[str] = []
    if not path.exists():
        raise FileNotFoundError(f"there are no embeddings {str(path)!r}; name a .pkl file, or a folder of .pth files")
    for clip_id, tensor in _read_folder(path, digest) if path.is_dir() else _read_pickle(path, digest):
        pooled = _clip_vector(path, clip_id, tensor)
        if clip_id in found and not torch.equal(pooled, found[clip_id]):
            other.append(clip_id)
        found.setdefault(clip_id, pooled)
    cure = "fetch the file again, or obtain another from its authors"
    if not found:
        raise ValueError(f"{path} holds no embeddings; {cure}")
    if other:
        raise ValueError(f"{path}: {len(other):,} clips have two embeddings that differ, such as {other[0]!r}; {cure}")
    sizes = Counter(len(one) for one in found.values())
    if len(sizes) > 1:
        counts = ", ".join(f"{count:,} of {size}" for size, count in sizes.most_common())
        raise ValueError(f"{path} has embeddings of several sizes ({counts}); keep those of one model in it")
    if strange := [clip_id for clip_id, one in found.items() if not one.isfinite().all()]:
        raise ValueError(
            f"{path}: {len(strange):,} of {len(found):,} embeddings hold values that are not finite, such as that of "
            f"{strange[0]!r}; {cure}"
        )
    return found, digest.hexdigest()


def _clip_vector(path: Path, clip_id: Any, tensor: Any) -> Tensor:
    if not isinstance(clip_id, str) or not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        raise ValueError(f"{path} has a {type(tensor).__name__} for {str(clip_id)[:80]!r}; only {{id: tensor}} is read")
    if not 1 <= tensor.ndim <= 3 or not tensor.numel():
        raise ValueError(
            f"{path}: {clip_id!r} has shape {tuple(tensor.shape)}; it must be (size,), (frames, size) or (frames, "
            "tokens, size)"
        )
    return tensor.float().flatten(0, -2).mean(0) if tensor.ndim > 1 else tensor.float()


def _read_pickle(path: Path, digest: Any) -> Iterator[tuple[Any, Any]]:
    data, count = path.read_bytes(), 0
    digest.update(data)
    try:
        for number, part in enumerate(interpret_pickles(data, TENSOR_WORDS), start=1):
            if not isinstance(part, dict):
                raise ValueError(f"part {number} is a {type(part).__name__}, no {{id: tensor}}")
            count += len(part)
            yield from part.items()
    except ValueError as error:
        raise ValueError(
            f"{path} is refused after {count:,} embeddings: {error}. Only {{id: tensor}} is read from a pickle; fetch "
            "the file again"
        ) from None


def _read_folder(path: Path, digest: Any) -> Iterator[tuple[Any, Any]]:
    for file in sorted(path.rglob("*.pth")):
        data = file.read_bytes()
        digest.update(f"{file.stem} {len(data)} ".encode() + data)
        try:
            tensor = _storage(data)
        except Exception as error:  # torch fails in many ways on what it does not read
            cause = str(error).rpartition("WeightsUnpickler error: ")[2].partition("\n")[0]
            raise ValueError(
                f"{file} holds no tensor ({cause[:200] or type(error).__name__}); fetch it again"
            ) from None
        yield file.stem, tensor
