"""Label pairs whose difference a short text can describe: similar, of one sport, not identical in text."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from hf_datasets.records import ChangeType, LabelPair, Rejection
from hf_datasets.tfcovr.free_text import character_vectors
from hf_datasets.tfcovr.labels import Attributes, Label, folded_text, load_labels
from hf_datasets.tfcovr.labels.gymnastics import GymnasticsAttributes

TextEmbedder = Callable[[list[str]], Any]
"""Texts -> embeddings (n, d), of any norm."""

DEFAULT_THRESHOLD = 0.6
"""With the similarity of attributes: every label has a partner. The paper gives no threshold for its CLIP texts."""
FREE_THRESHOLD = 0.0
"""With the similarity of characters: every label may be a partner, and `top_n` keeps the most similar ones."""
SAME_TEXT = "identical description: no text can tell the two labels apart"
OTHER_SPORT = "different sports: a gymnastics element is not modified into a dive"


def label_pairs(
    labels: Sequence[Label] | None = None,
    *,
    embeddings: TextEmbedder | Any | None = None,
    threshold: float = DEFAULT_THRESHOLD,
    top_n: int | None = None,
) -> list[LabelPair]:
    """The ordered pairs of labels that are similar enough, by source in the given order, most similar target first.

    >>> pairs = label_pairs(top_n=1)
    >>> pairs[0].source, pairs[0].target, pairs[0].change_type
    ('0', '1', 'temporal')

    Args:
        labels: The labels to pair; all 306 by default.
        embeddings: An encoder of descriptions (`text_encoder` loads one), or their embeddings of shape (n, d) in the
            order of `labels`, compared by cosine. By default the share of
            attributes that agree; for labels without attributes the cosine of `free_text.character_vectors`.
        threshold: Minimum similarity, in [-1, 1]. With text encoders all sport labels are similar, so set it higher
            than the default, or leave it low with `top_n`.
        top_n: The most targets per source; ties are kept in label order. None keeps all.

    Raises:
        ValueError: The threshold, `top_n` or the embeddings are invalid.
    """
    proposed = propose_pairs(labels, embeddings=embeddings, threshold=threshold, top_n=top_n)
    return [pair for pair in proposed if isinstance(pair, LabelPair)]


def propose_pairs(
    labels: Sequence[Label] | None = None,
    *,
    embeddings: TextEmbedder | Any | None = None,
    threshold: float = DEFAULT_THRESHOLD,
    top_n: int | None = None,
) -> Iterator[LabelPair | Rejection]:
    """As `label_pairs`, with a rejection for each similar pair that cannot be used: identical texts, other sport.

    >>> rejected = [pair for pair in propose_pairs() if isinstance(pair, Rejection)]
    >>> len(rejected), rejected[0].key
    (8, '180->216')

    Yields:
        A pair, or its rejection.

    Raises:
        ValueError: The threshold, `top_n` or the embeddings are invalid, see `label_pairs`.
    """
    labels = load_labels() if labels is None else labels
    if not -1 <= threshold <= 1:
        raise ValueError(f"threshold is {threshold}, allowed are cosines and shares from -1 to 1")
    if top_n is not None and top_n < 1:
        raise ValueError(f"top_n is {top_n}, allowed are positive numbers, or None for no limit")
    similarities = similarities_of(labels, embeddings)
    for source, row in zip(labels, similarities, strict=True):
        accepted = 0
        for target_index in np.argsort(-row, kind="stable"):
            target, similarity = labels[target_index], float(row[target_index])
            if similarity < threshold:
                break
            if source.label_id == target.label_id:
                continue
            outcome = judge_pair(source, target, similarity)
            if isinstance(outcome, Rejection):
                yield outcome
            elif top_n is None or accepted < top_n:
                accepted += 1
                yield outcome


def similarities_of(labels: Sequence[Label], embeddings: TextEmbedder | Any | None) -> np.ndarray:
    """The similarity of every two labels as in `label_pairs`: float64 of shape (n, n)."""
    if embeddings is not None:
        return cosines(labels, embeddings)
    if any(label.attributes is None for label in labels):
        return cosines(labels, character_vectors)
    return attribute_similarities(labels)


def default_threshold(labels: Sequence[Label]) -> float:
    """The default minimum similarity: of attributes where all labels have them, else of characters."""
    return FREE_THRESHOLD if any(label.attributes is None for label in labels) else DEFAULT_THRESHOLD


def judge_pair(source: Label, target: Label, similarity: float) -> LabelPair | Rejection:
    """The pair with its change type, or its rejection."""
    key = f"{source.label_id}->{target.label_id}"
    raw = f"{source.description} -> {target.description}"
    if folded_text(source.description) == folded_text(target.description):
        return Rejection(SAME_TEXT, raw, key)
    if source.source != target.source:
        return Rejection(OTHER_SPORT, raw, key)
    return LabelPair(source.label_id, target.label_id, change_type(source, target), similarity)


def change_type(source: Label, target: Label) -> ChangeType:
    """`event` where the apparatus changes, `temporal` where the action changes on the same one (section 3).

    An event change keeps the sub-action; where it changes a little as well ("show a split leap on BB" in the paper's
    examples) the pair still leads to another event, and is typed so.
    """
    return "temporal" if apparatus(source) == apparatus(target) else "event"


def apparatus(label: Label) -> str:
    """The event a label belongs to; all dives are one, and so are all labels outside the grammar."""
    attributes = label.attributes
    return attributes.apparatus if isinstance(attributes, GymnasticsAttributes) else label.source


def attribute_similarity(first: Attributes, second: Attributes) -> float:
    """The share of attributes that agree among those that either label has, in [0, 1].

    Labels of different sports or families of elements have nothing to compare: 0. The family, or for a dive the
    sport, counts as one attribute that agrees.

    >>> from hf_datasets.tfcovr.labels import find_label
    >>> attribute_similarity(find_label("40").attributes, find_label("41").attributes)
    0.8
    """
    if kind(first) != kind(second):
        return 0.0
    values = [(getattr(first, slot.name), getattr(second, slot.name)) for slot in fields(first) if slot.compare]
    stated: list[bool] = [one == other for one, other in values if one or other]
    if not isinstance(first, GymnasticsAttributes):
        stated.append(True)
    return sum(stated) / len(stated)


def kind(attributes: Attributes) -> str:
    """The kind that labels must share to be compared by attributes."""
    return attributes.family if isinstance(attributes, GymnasticsAttributes) else "dive"


def attribute_similarities(labels: Sequence[Label]) -> np.ndarray:
    """The similarity of every two labels by their attributes: float64 of shape (n, n)."""
    attributes = [label.attributes for label in labels if label.attributes is not None]
    similarities = [[attribute_similarity(first, second) for second in attributes] for first in attributes]
    return np.array(similarities).reshape(len(labels), len(labels))


def cosines(labels: Sequence[Label], embeddings: TextEmbedder | Any) -> np.ndarray:
    """The cosine of every two labels' embeddings: float64 of shape (n, n).

    Raises:
        ValueError: The embeddings are not one finite, non-zero vector per label.
    """
    found = embeddings([label.description for label in labels]) if callable(embeddings) else embeddings
    vectors = np.asarray(found, dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != len(labels):
        raise ValueError(
            f"the embeddings have shape {vectors.shape}, expected ({len(labels)}, d): one vector per label, in order"
        )
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not (np.isfinite(vectors).all() and norms.all()):
        raise ValueError("the embeddings hold NaN, infinity or a zero vector; check the text encoder")
    unit = vectors / norms
    # Rounding errors put equal vectors slightly above 1, and a threshold of 1 is allowed.
    similarities: np.ndarray = np.clip(unit @ unit.T, -1.0, 1.0).round(12)
    return similarities


def text_encoder(name_or_path: str, *, batch_size: int = 64, device: str = "cpu") -> TextEmbedder:
    """An encoder of texts from any CLIP-like text model or sentence encoder that transformers can load.

    Models with `get_text_features` (CLIP, SigLIP, ...) give those; any other gives the mean of its last hidden states
    over the tokens of a text, as sentence encoders are trained.
    """
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(name_or_path)
    model = AutoModel.from_pretrained(name_or_path).eval().to(device)
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)

    @torch.inference_mode()
    def encode(texts: list[str]) -> np.ndarray:
        batches = [texts[start : start + batch_size] for start in range(0, len(texts), batch_size)]
        vectors = []
        for batch in batches:
            inputs = tokenizer(batch, padding=True, truncation=limit is not None, max_length=limit, return_tensors="pt")
            vectors.append(text_features(model, inputs.to(device)).float().cpu().numpy())
        return np.concatenate(vectors)

    return encode


def text_features(model: Any, inputs: Any) -> Any:
    """One vector per text, (batch, d): the model's own text features, or the mean of its hidden states."""
    if hasattr(model, "get_text_features"):
        features = model.get_text_features(**inputs)
        return getattr(features, "pooler_output", features)
    hidden = model(**inputs).last_hidden_state  # (batch, length, d)
    mask = inputs["attention_mask"].unsqueeze(-1).to(hidden.dtype)
    return (hidden * mask).sum(1) / mask.sum(1)
