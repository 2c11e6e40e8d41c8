"""The commands of "From paper to command" in recipes/README.md, as a person types them."""

import re
import shlex
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

README = Path(__file__).parents[2] / "recipes/README.md"
COMMAND = ("subtle ", "accelerate launch ", "python -m ")
LAUNCHED = r"^accelerate launch (?:--\S+ (?:\$\([^)]*\)|\S+) )*\$\(subtle path (\w+)\)"
STANDS_FOR = {
    ("TF-CoVR", "--source"): "data/tfcovr",
    ("TF-CoVR", "--data_dir"): "data/tfcovr",
    ("TF-CoVR", "--video_dir"): "data/videos",
    ("zero_shot_paper.yaml", "--merge"): "outputs/tfcovr/zero_shot",
    ("finetune_baseline_paper.yaml", "--merge"): "outputs/tfcovr/finetune_baseline",
    ("VideoComp", "--source"): "data/activitynet_captions",
    ("VideoComp", "--data_dir"): "data/video_comp",
    ("VideoComp", "--video_dir"): "data/activitynet_videos",
    ("VERIFIED", "--video_dir"): "data/charades_fig_videos",
    ("", "--model"): "gpt-4o",
    ("", "--encoder"): "openai/clip-vit-base-patch32",
}
"""Section or configuration file, and flag -> what stands for DIR, VIDEOS or MODEL after it."""


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        section: of the README, a paper.
        row: its table, figure or section.
        text: as it stands there, without what is optional or with one of the optional parts.
    """

    section: str
    row: str
    text: str

    def words(self, url: str) -> list[str]:
        """What one types after `subtle`, with folders for DIR and the address of a chat server for URL."""
        text = re.sub(LAUNCHED, r"subtle \1", self.text)
        words = shlex.split(re.sub(r"\$\(subtle path ([^)]*)\)", r"\1", text))[1:]
        places = ("", self.section, *words)
        for place, word in enumerate(words):
            if word in {"DIR", "MODEL", "VIDEOS"}:
                found = [STANDS_FOR[key] for key in STANDS_FOR if key[0] in places and key[1] == words[place - 1]]
                words[place] = found[-1]
        return [url if word == "URL" or before == "--base_url" else word for before, word in pairwise(["", *words])]


def optional_parts(text: str) -> list[str]:
    """The texts that `a [b] c [d]` stands for, each optional part left out or there, one at a time.

    >>> optional_parts("build [--model M] --to D [--dry_run]")
    ['build --to D', 'build --model M --to D', 'build --to D --dry_run']
    """
    pieces = re.split(r"\s*\[([^]]*)\]", text)
    parts = range(1, len(pieces), 2)
    kept = [(), *((part,) for part in parts)]
    return [
        "".join(piece if place % 2 == 0 else f" {piece}" * (place in chosen) for place, piece in enumerate(pieces))
        for chosen in kept
    ]


def read_commands() -> list[Command]:
    """All in order. A span of flags alone goes on with the command before it, perhaps "for" one of its flags."""
    text = README.read_text(encoding="utf-8").partition("## From paper to command")[2].partition("\n## ")[0]
    found: list[Command] = []
    whole = ""
    for number, part in enumerate(re.split(r"^### ", text, flags=re.MULTILINE)):
        section = part.partition("\n")[0].strip() if number else "before the others"
        for line in part.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("| ") else ["", line]
            if (number and not cells[0]) or len(cells) != 2:
                continue
            for span, replaced in re.findall(r"`([^`]+)`(?: for `(--[^`]+)`)?", cells[1]):
                if span.startswith("--") and span not in whole:
                    texts = [f"{whole.replace(replaced, '').strip()} {span}"]
                elif span.startswith(COMMAND):
                    whole, *others = optional_parts(span)
                    texts = [whole, *others]
                else:
                    continue
                found += [Command(section, cells[0], text) for text in texts]
    return list(dict.fromkeys(found))
