"""The commands of "From paper to command" in recipes/README.md, as a person types them."""

import itertools
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parents[2] / "recipes/README.md"
COMMAND = ("subtle ", "accelerate launch ", "python -m ")
FOLDERS = {
    ("TF-CoVR", "--source"): "data/tfcovr",
    ("TF-CoVR", "--data_dir"): "data/tfcovr",
    ("TF-CoVR", "--video_dir"): "data/videos",
    ("VideoComp", "--source"): "data/activitynet_captions",
    ("VideoComp", "--data_dir"): "data/video_comp",
    ("VideoComp", "--video_dir"): "data/activitynet_videos",
    ("VERIFIED", "--source"): "data/charades_fig",
    ("VERIFIED", "--release"): "data/charades_fig",
    ("VERIFIED", "--data_dir"): "data/charades_fig",
    ("VERIFIED", "--video_dir"): "data/charades_fig_videos",
    ("VERIFIED", "--build"): "outputs/build_fig",
    ("VERIFIED", "--answers"): "outputs/analysis/user-study",
}
"""Section and flag -> what stands for DIR."""


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
        text = re.sub(r"^accelerate launch (?:--\S+ \S+ )*\$\(subtle path (\w+)\)", r"subtle \1", self.text)
        words = shlex.split(text.replace("$(subtle path ", "").replace(")", ""))[1:]
        for place, word in enumerate(words):
            if word == "DIR":
                words[place] = FOLDERS[self.section, words[place - 1]]
        return [{"MODEL": "gpt-4o", "URL": url}.get(word, word) for word in words]


def optional_parts(text: str) -> list[str]:
    """The texts that `a [b] c [d]` stands for, each optional part left out or there, one at a time.

    >>> optional_parts("build [--model M] --to D [--dry_run]")
    ['build --to D', 'build --model M --to D', 'build --to D --dry_run']
    """
    pieces = re.split(r"\s*\[([^]]*)\]", text)
    parts = range(1, len(pieces), 2)
    kept = [(), *itertools.combinations(parts, 1)]
    return ["".join(piece if place % 2 == 0 else f" {piece}" * (place in chosen) for place, piece in enumerate(pieces)) for chosen in kept]


def read_commands() -> list[Command]:
    """All of them in order. A span of flags alone goes on with the command before it."""
    text = README.read_text(encoding="utf-8").partition("## From paper to command")[2].partition("\n## ")[0]
    found: list[Command] = []
    for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        section = part.partition("\n")[0].strip()
        for line in part.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("| ") else []
            if len(cells) != 2 or cells[0] == "table or section":
                continue
            for span in re.findall(r"`([^`]+)`", cells[1]):
                if span.startswith("--"):
                    span = f"{found[-1].text} {span}"
                if span.startswith(COMMAND):
                    found += [Command(section, cells[0], one) for one in optional_parts(span)]
    return list(dict.fromkeys(found))
