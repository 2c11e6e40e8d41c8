"""Count the pairs of ActivityNet-Comp or YouCook2-Comp per disruption, beside Table 1 of the paper."""

from pathlib import Path

from hf_datasets.comp.statistics import PAPER_COUNTS, disruption_counts
from hf_datasets.drafts import replacing_files, write_json
from hf_datasets.paper_counts import beside_paper
from subtle.evaluate.options import AnalyzeCompConfig
from subtle.run.data import open_dataset
from subtle.run.printing import show, show_beside_paper
from subtle.run.results import write_results


def main(config: AnalyzeCompConfig) -> None:
    data = open_dataset(config)
    counts = disruption_counts(config.dataset, {split: rows["disruption_type"] for split, rows in data.items()})
    head = ["split", *next(iter(counts.values()))]
    show(head, [[of.partition("/")[2], *(f"{n:,}" for n in found.values())] for of, found in counts.items()], "pairs")
    compared = {} if config.dataset_config == "mini" else beside_paper(PAPER_COUNTS, counts)
    show_beside_paper(compared)
    with replacing_files(Path(config.output_dir)) as draft:
        if compared:
            write_json(draft / "statistics.json", compared)
        source = next(iter(data.values())).info.description
        write_results(draft, counts, config=config, seed=0, source=source)
