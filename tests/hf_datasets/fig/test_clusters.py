"""Clusters of captions against DBSCAN over all of them; the recipe's tests hold the tables and maps."""

import subprocess
import sys

import numpy as np
from sklearn.cluster import DBSCAN

from hf_datasets.fig.clusters import NOISE, CaptionMap

CAPTIONS = ["A man sits.", "a man sits", "A man sits.", "The dog runs away.", "Somebody opens a red door.", "unlike"]


def test_clusters_are_those_of_dbscan_over_all_captions():
    captions = CaptionMap(CAPTIONS * 2, "tfidf")
    found = captions.cluster(eps=0.01, min_samples=2)
    vectors = captions.embeddings.toarray()[captions.places]
    expected = DBSCAN(eps=0.01, min_samples=2, metric="cosine").fit_predict(vectors)
    assert len(set(zip(found.labels.tolist(), expected.tolist(), strict=True))) == len(set(expected.tolist()))
    assert (found.classes, found.instances) == (4, 12)
    once = CaptionMap(CAPTIONS, "tfidf").cluster()
    assert once.labels.tolist().count(NOISE) == 3
    assert (once.classes, once.instances) == (1, 3)


def test_captions_as_far_apart_as_eps_are_one_cluster_whatever_the_last_bits_of_their_embeddings():
    captions = CaptionMap(["a", "b"])
    for distance, number in ((0.01 - 1e-7, 1), (0.01 + 1e-7, 1), (0.01 + 1e-5, 0)):
        cosine = 1 - distance
        captions.embeddings = np.array([[1.0, 0.0], [cosine, (1 - cosine**2) ** 0.5]])
        assert captions.cluster().classes == number


def test_importing_the_clusters_imports_no_library_that_takes_seconds():
    heavy = "{'matplotlib', 'scipy', 'sklearn', 'torch', 'transformers'}"
    code = f"import sys, hf_datasets.fig.clusters; print({heavy} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "set()"
