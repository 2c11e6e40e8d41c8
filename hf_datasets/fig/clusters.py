"""How similar captions are: DBSCAN over sentence embeddings (VERIFIED, Table 2) and their t-SNE map (Figure 5).

scikit-learn, Matplotlib and torch are imported by the functions that need them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TFIDF = "tfidf"
ROUNDING = 1e-6
"""How far the cosine distance of two float32 embeddings is off; in Charades-FIG two captions are at 0.01000007."""
NOISE = -1
SVD_DIMENSIONS = 50
BATCH = 64


def embed_sentences(sentences: Sequence[str], encoder: str = TFIDF) -> Any:
    """Embeddings of unit length.

    Args:
        sentences: The captions.
        encoder: "tfidf" (words and pairs of words, no download), or a text model's folder or name on the Hub, whose
            last states are averaged over the tokens, as Sentence-BERT does.

    Returns:
        `(n, D)`: a NumPy array, or with "tfidf" a sparse matrix of SciPy.
    """
    if encoder == TFIDF:
        from sklearn.feature_extraction.text import TfidfVectorizer

        return TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+").fit_transform(sentences)
    import torch
    from sklearn.preprocessing import normalize
    from tqdm import tqdm
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(encoder), AutoModel.from_pretrained(encoder).eval()
    parts = []
    for first in tqdm(range(0, len(sentences), BATCH), desc="sentences", unit="batch"):
        batch = list(sentences[first : first + BATCH])
        tokens = tokenizer(batch, padding=True, truncation=True, return_tensors="pt")
        mask = tokens["attention_mask"][..., None]
        with torch.inference_mode():
            states = model(**tokens).last_hidden_state
            parts.append(((states * mask).sum(1) / mask.sum(1)).numpy())
    return normalize(np.concatenate(parts))


@dataclass(frozen=True)
class Clusters:
    """Captions grouped by DBSCAN.

    Attributes:
        labels: `(n,)` integers, the cluster of each caption, -1 for one without a cluster.
    """

    labels: np.ndarray

    @property
    def classes(self) -> int:
        """Number of clusters ("# class" of Table 2)."""
        return len(set(self.labels.tolist()) - {NOISE})

    @property
    def instances(self) -> int:
        """Number of captions in a cluster ("# instance")."""
        return int((self.labels != NOISE).sum())


class CaptionMap:
    """The captions of one granularity with their embeddings; equal captions are embedded and compared once.

    Args:
        captions: n texts.
        encoder: See `embed_sentences`.

    Attributes:
        embeddings: Of the distinct captions, sorted; see `embed_sentences`.
        places: `(n,)` integers, the row of `embeddings` of each caption.
        counts: How often each distinct caption occurs.

    Example:
        >>> clusters = CaptionMap(["A man sits.", "a man sits", "The dog runs."]).cluster()
        >>> clusters.labels.tolist(), clusters.classes, clusters.instances
        ([0, 0, -1], 1, 2)
    """

    def __init__(self, captions: Sequence[str], encoder: str = TFIDF) -> None:
        distinct, self.places, self.counts = np.unique(
            np.array(captions, dtype=object), return_inverse=True, return_counts=True
        )
        self.embeddings = embed_sentences(distinct.tolist(), encoder)

    def cluster(self, *, eps: float = 0.01, min_samples: int = 2) -> Clusters:
        """Group captions whose cosine distance is at most `eps`; the paper's values are the defaults.

        Distances are equal to `eps` within `ROUNDING`, so that the result does not hang on the number of threads.
        """
        from sklearn.cluster import DBSCAN

        dbscan = DBSCAN(eps=eps + ROUNDING, min_samples=min_samples, metric="cosine")
        # Distinct captions are weighted by how often they occur, which equals DBSCAN over all captions.
        labels = dbscan.fit_predict(self.embeddings, sample_weight=self.counts)
        return Clusters(labels[self.places])

    def project(self, distinct: np.ndarray, *, seed: int) -> np.ndarray:
        """A t-SNE map `(n, 2)` of n distinct captions; equal ones would repel each other.

        Args:
            distinct: `(n,)` rows of `embeddings`.
            seed: Decides the map.
        """
        from sklearn.decomposition import TruncatedSVD
        from sklearn.manifold import TSNE
        from sklearn.preprocessing import normalize

        if len(distinct) == 1:
            return np.zeros((1, 2))
        vectors = self.embeddings[distinct]
        if not isinstance(vectors, np.ndarray):  # sparse: fewer dimensions first, as scikit-learn advises
            dimensions = min(SVD_DIMENSIONS, *(size - 1 for size in vectors.shape))
            vectors = normalize(TruncatedSVD(dimensions, random_state=seed).fit_transform(vectors))
        perplexity = min(30.0, (len(distinct) - 1) / 3)
        positions: np.ndarray = TSNE(perplexity=perplexity, init="random", random_state=seed).fit_transform(vectors)
        return positions


def plot_maps(coarse: CaptionMap, fine: CaptionMap, *, eps: float, min_samples: int, seed: int) -> "Figure":
    """Draw the captions that cluster when coarse, and the fine captions of the same moments, in the same colors.

    Args:
        coarse: The coarse captions of the moments.
        fine: The fine captions of the same moments, in the same order.
        eps: See `CaptionMap.cluster`.
        min_samples: Captions that make a cluster.
        seed: Decides the maps.

    Raises:
        ValueError: No coarse caption is in a cluster of `min_samples`.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    groups = coarse.cluster(eps=eps, min_samples=min_samples).labels
    rows = np.flatnonzero(groups != NOISE)
    if not len(rows):
        raise ValueError(f"no coarse caption is like {min_samples - 1} others")
    fine_groups = fine.cluster(eps=eps, min_samples=min_samples).labels[rows]
    counts = {"coarse": len(set(groups[rows].tolist())), "fine": len(set(fine_groups.tolist()) - {NOISE})}
    # Steps of the golden section around the color wheel, so that consecutive numbers get different colors.
    colors = colormaps["hsv"]((groups[rows] * 0.618034) % 1.0) * np.array([0.85, 0.8, 0.85, 1.0])
    figure = Figure(figsize=(11, 5.4), layout="constrained")
    for axes, (name, captions) in zip(figure.subplots(1, 2), {"coarse": coarse, "fine": fine}.items(), strict=True):
        distinct, first, sizes = np.unique(captions.places[rows], return_index=True, return_counts=True)
        x, y = captions.project(distinct, seed=seed).T
        axes.scatter(x, y, s=7 * sizes, c=colors[first], alpha=0.6, linewidths=0)
        axes.margins(0.1)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_title(f"{name}: {len(distinct):,} different captions, {counts[name]:,} clusters")
    figure.supxlabel(
        f"{len(rows):,} moments whose coarse captions form clusters of at least {min_samples}, colored by cluster; "
        "the area of a disc is the number of equal captions",
        fontsize=10,
    )
    return figure
