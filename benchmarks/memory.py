"""Memory and hours of every training configuration that ships for a GPU, against the card that it is for.

Estimated without a GPU, as `--dry_run` does; minutes.
"""

from collections.abc import Iterator

from benchmarks.timing import Ratio
from subtle.commands import CONFIGS
from subtle.options import parse_config
from subtle.run.gpus import GPUS
from subtle.train.estimates import estimate_run
from subtle.train.options import Stage1Config, Stage2Config, VCMRConfig, VidCLIPRunConfig

RUNS = {
    "stage1_one_gpu": (Stage1Config, 1, "RTX 4090"),
    "stage1_4xa100": (Stage1Config, 4, "A100 40 GB"),
    "stage2_one_gpu": (Stage2Config, 1, "RTX 4090"),
    "stage2_4xa100": (Stage2Config, 4, "A100 40 GB"),
    "stage2_end_to_end_4xa100": (Stage2Config, 4, "A100 40 GB"),
    "vidclip_paper_1_image": (VidCLIPRunConfig, 4, "A100"),
    "vidclip_paper_2_base": (VidCLIPRunConfig, 4, "A100"),
    "vidclip_paper_3_comppretrain": (VidCLIPRunConfig, 4, "A100"),
    "vidclip_paper_4_activitynet": (VidCLIPRunConfig, 1, "A100"),
    "vcmr_charades_fig vcmr_xml": (VCMRConfig, 1, "RTX 4090"),
    "vcmr_activitynet_fig vcmr_reloclnet": (VCMRConfig, 1, "RTX 4090"),
    "vcmr_activitynet_fig vcmr_hero": (VCMRConfig, 1, "RTX 4090"),
}
"""Files of `recipes/configs` -> the options, the number of GPUs, and the card that each is to fit on."""


def measure() -> Iterator[Ratio]:
    """One line for each configuration."""
    for files, (kind, num_gpus, card) in RUNS.items():
        run = estimate_run(
            parse_config(kind, None, [str(CONFIGS / f"{file}.yaml") for file in files.split()]), num_gpus
        )
        gigabytes, of_card = run.memory_bytes / 2**30, GPUS[card][0]
        hours = [run.hours(name) for name in ("A100", "H100")]
        shown = "; ".join(f"{one:.2g} h on {name}" for one, name in zip(hours, ("A100", "H100"), strict=True) if one)
        detail = f"{gigabytes:.1f} GB; {shown}; decoding {run.decoding_cores('A100'):.0f} cores for an A100"
        yield Ratio(f"{files}, {num_gpus} GPU", f"{card} ({of_card:g} GB)", gigabytes / of_card, 0.95, True, detail)
