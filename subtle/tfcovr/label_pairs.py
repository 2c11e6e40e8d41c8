"""The pairs of TF-CoVR's labels by their attributes beside those by a text encoder: which differ, and in what."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import polars as pl

from hf_datasets.tfcovr.labels import Label, differences
from hf_datasets.tfcovr.pairs import DEFAULT_THRESHOLD, TextEmbedder, kind, label_pairs

COUNTED_ATTRIBUTES = {"turns", "entry_turns", "at_least", "somersaults", "twists_before", "twists_after"}
CHANGES = {
    "numbers": "numbers: turns, twists, saltos",
    "words": "words: shape, direction, legs, ...",
    "numbers and words": "numbers and words",
    "apparatus": "apparatus",
    "apparatus and more": "apparatus and more",
    "family": "family of elements",
}
"""What a pair of labels changes -> in words."""
GROUPS = ("both", "attributes", "texts", "neither")
EXAMPLES = 3


@dataclass(frozen=True)
class PairComparison:
    """Both choices of pairs.

    Attributes:
        pairs: Every ordered pair of labels of one sport whose texts differ: `source`, `target`, their descriptions,
            `attributes` (the share that agrees), `cosine`, `change` (of `CHANGES`), `changed` (how many attributes)
            and `chosen_by` (of `GROUPS`).
        cosine: The least cosine of a pair that the texts choose.
    """

    pairs: pl.DataFrame
    cosine: float

    def summary(self) -> dict[str, Any]:
        """Counts of every kind of change and choice, means, and pairs on which the two disagree most."""
        groups = [self.pairs.filter(pl.col("chosen_by") == name) for name in GROUPS]
        changes = []
        for name in CHANGES:
            rows = self.pairs.filter(pl.col("change") == name)
            counts = {group: rows.filter(pl.col("chosen_by") == group).height for group in GROUPS}
            changes.append({"change": name, "pairs": rows.height, **counts, "cosine": rows["cosine"].mean()})
        return {
            "least_attributes": DEFAULT_THRESHOLD,
            "least_cosine": self.cosine,
            "pairs": {name: rows.height for name, rows in zip(GROUPS, groups, strict=True)},
            "changed_attributes": {
                name: rows.filter(pl.col("change") != "family")["changed"].mean()
                for name, rows in zip(GROUPS, groups, strict=True)
            },
            "changes": changes,
            "labels_without_a_partner": {
                "attributes": self._alone("attributes"),
                "texts": self._alone("texts"),
            },
            "examples": {"attributes": self._examples("attributes"), "texts": self._examples("texts")},
        }

    def _alone(self, by: str) -> int:
        chosen = self.pairs.filter(pl.col("chosen_by").is_in(["both", by]))
        return self.pairs["source"].n_unique() - chosen["source"].n_unique()

    def _examples(self, by: str) -> list[dict[str, Any]]:
        rows = self.pairs.filter((pl.col("chosen_by") == by) & (pl.col("source") < pl.col("target")))
        return rows.sort("cosine", descending=by == "texts", maintain_order=True).head(EXAMPLES).to_dicts()


def compare_pairs(labels: Sequence[Label], encoder: TextEmbedder | Any) -> PairComparison:
    """Choose pairs by attributes, and as many by the cosines of a text encoder.

    Args:
        labels: TF-CoVR's, which have attributes.
        encoder: See `hf_datasets.tfcovr.pairs.label_pairs`.

    Raises:
        ValueError: See `label_pairs`.
    """
    by_id = {label.label_id: label for label in labels}
    attributes: dict[str, Any] = {label.label_id: label.attributes for label in labels}
    shares, cosines = (
        {(pair.source, pair.target): pair.similarity for pair in pairs}
        for pairs in (label_pairs(labels, threshold=-1), label_pairs(labels, embeddings=encoder, threshold=-1))
    )
    by_attributes = {pair for pair, share in shares.items() if share >= DEFAULT_THRESHOLD}
    least = sorted(cosines.values(), reverse=True)[len(by_attributes) - 1]
    rows = []
    for pair in permutations(by_id, 2):
        if pair in shares:
            source, target = (by_id[one] for one in pair)
            chosen = (pair in by_attributes, cosines[pair] >= least)
            rows.append(
                {
                    "source": pair[0],
                    "target": pair[1],
                    "source_description": source.description,
                    "target_description": target.description,
                    "attributes": shares[pair],
                    "cosine": cosines[pair],
                    "change": change_of(source, target),
                    "changed": len(differences(*(attributes[one] for one in pair))),
                    "chosen_by": {(True, True): "both", (True, False): "attributes", (False, True): "texts"}.get(
                        chosen, "neither"
                    ),
                }
            )
    return PairComparison(pl.DataFrame(rows), least)


def change_of(source: Label, target: Label) -> str:
    """What a pair of labels of one sport changes, of `CHANGES`."""
    attributes: list[Any] = [source.attributes, target.attributes]
    if kind(attributes[0]) != kind(attributes[1]):
        return "family"
    changed = {change.attribute for change in differences(*attributes)}
    if "apparatus" in changed:
        return "apparatus and more" if len(changed) > 1 else "apparatus"
    if changed <= COUNTED_ATTRIBUTES:
        return "numbers"
    return "numbers and words" if changed & COUNTED_ATTRIBUTES else "words"
