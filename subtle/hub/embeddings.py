"""The folder of a publication of embeddings: the stores of `embed clips`, their results, and a card."""

import shutil
from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData

from hf_datasets.drafts import draft_of, write_json
from hf_models.feature_store import FeatureStore
from subtle.hub.machine_paths import without_paths
from subtle.hub.publication import Publication
from subtle.run.encoded_data import ENCODED_DATA
from subtle.run.results import read_json

EMBEDDINGS_CARD = """# Embeddings of {clips:,} clips and {texts:,} texts

Of `{dataset}`, configuration `{config}`: {clips:,} of its {all_clips:,} clips have an embedding, of size {size}.

| store | what made it |
|---|---|
{made}

```bash
hf download {repo_id} --repo-type dataset --local-dir embeddings
subtle stage2 stage2_one_gpu.yaml --embeddings embeddings
```

Each is a safetensors file with an array `embeddings` and the list of `ids` in its header:
`hf_models.feature_store.FeatureStore("embeddings/video")` reads them. {imported}
"""
IMPORTED = (
    "The clips' embeddings were imported, not made by this project: stage 2 needs neither videos nor a video encoder."
)
OWN = "Stage 2 takes them for the encoders whose weights they were made with, and refuses others."


def prepare_embeddings(source: str, repo_id: str, folder: Path, *, license: str | None = None) -> Publication:
    """Write a folder that is complete for the Hub.

    Args:
        source: The folder that `embed clips` wrote, or one that was downloaded.
        repo_id: `ORG/NAME`.
        folder: A folder that does not exist yet, or is empty.
        license: As the Hub calls it; None: the card names none.

    Returns:
        The publication.

    Raises:
        ValueError: The source is not finished, or a store of it is damaged.
    """
    place = Path(source)
    if not (place / "results.json").is_file():
        raise ValueError(f"{place} is not a finished folder of embeddings; `python recipes/embed.py clips` makes one")
    results = without_paths(read_json(place / "results.json", config=dict, coverage=dict))
    stores = {kind: FeatureStore(place / kind) for kind in ("video", "text")}
    (_, video), (texts, _) = (store.load() for store in stores.values())
    made = [
        f"| {kind} | {', '.join(f'{name} `{value}`' for name, value in sorted(store.details.items()))} |"
        for kind, store in stores.items()
    ]
    config, covered = results["config"], results["coverage"]
    said: dict[str, Any] = {"dataset": config["dataset"], "config": config["dataset_config"], "repo_id": repo_id}
    said |= {"clips": len(video), "all_clips": covered["clips"], "size": video.shape[1], "texts": len(texts)}
    said |= {"made": "\n".join(made), "imported": IMPORTED if "imported" in covered else OWN}
    with draft_of(folder) as draft:
        for kind in stores:
            shutil.copytree(place / kind, draft / kind, ignore=shutil.ignore_patterns("*.tmp"))
        if (place / ENCODED_DATA).is_file():
            shutil.copyfile(place / ENCODED_DATA, draft / ENCODED_DATA)
        write_json(draft / "results.json", results)
        header = DatasetCardData(license=license, tags=["subtle-video", "embeddings"])
        DatasetCard(f"---\n{header}\n---\n\n{EMBEDDINGS_CARD.format(**said)}").save(draft / "README.md")
    return Publication("dataset", repo_id, folder)
