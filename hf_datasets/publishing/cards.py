"""The card of a published dataset: of a source card, only what is about the configurations that are published.

A source card is Markdown with a YAML header. A block between the lines `<!-- only PATTERN ... -->` and
`<!-- end only -->`, or a line that contains the first of them, is kept where one of the configurations has a name that
fits a pattern (`own*`; `!own*` where none has), so that `only package` is for readers of the package alone; blocks may
stand in blocks. The section "Configurations" is written from the data.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from datasets import DatasetInfo, SplitInfo
from datasets.info import DatasetInfosDict
from datasets.splits import SplitDict
from huggingface_hub import DatasetCard

from hf_datasets.builders import RENDERED, summarise
from hf_datasets.publishing.shards import WrittenSplit
from hf_datasets.records import Rejection

COUNTS_START = "<!-- counts: filled in by hf_datasets.publish -->"
COUNTS_END = "<!-- end of counts -->"
ONLY = re.compile(r" ?<!-- only ([^<>]+?) -->")
END_ONLY = "<!-- end only -->"
CONFIGURATIONS_SECTION = "Configurations"
DESCRIBED_THERE = (
    "The descriptions are those of the machine that made the rows: videos are in this repository only where a "
    "configuration has a column of type `Video`, and paths of files are left out."
)
CALL = re.compile(r'(load_dataset\(")[\w.-]+/[\w.-]+"')
"""How the code of a source card opens the repository, `load_dataset("ORG/NAME"`."""
ORGANIZATION = re.compile(r"\bORG(?=/)")
"""Where other datasets of this project are: with this one."""
MINIATURE_CALL = re.compile(r'(load_dataset\("[\w.-]+/[\w.-]+", )"mini')
SYNTHETIC = "synthetic"
HUB = "https://huggingface.co/datasets"
SIZE_CATEGORIES = {
    1_000: "n<1K", 10**4: "1K<n<10K", 10**5: "10K<n<100K", 10**6: "100K<n<1M", 10**7: "1M<n<10M", 10**8: "10M<n<100M",
    10**9: "100M<n<1B",
}  # fmt: skip
LICENSES = {
    "apache-2.0": "https://www.apache.org/licenses/LICENSE-2.0",
    "mit": "https://opensource.org/license/mit",
    **{
        f"cc-{kind}-4.0": f"https://creativecommons.org/licenses/{kind}/4.0/"
        for kind in ("by", "by-sa", "by-nc", "by-nd", "by-nc-sa", "by-nc-nd")
    },
    "cc0-1.0": "https://creativecommons.org/publicdomain/zero/1.0/",
}
"""License identifier of the Hub -> its text; others get no link."""
TEXT_FIELDS = frozenset(
    {
        "annotations_creators", "language", "language_creators", "license", "license_link", "license_name",
        "multilinguality", "pretty_name", "size_categories", "source_datasets", "tags", "task_categories", "task_ids",
    }
)  # fmt: skip
"""Fields of a card's YAML header that hold a text or a list of texts."""
MARKUP = re.compile(r"[\\`*\[\]|~]|(?<!\w)_|_(?!\w)")

Splits = Mapping[tuple[str, str], WrittenSplit]
"""Configuration and split -> what was written."""


@dataclass(frozen=True)
class About:
    """What a card says beyond the rows.

    Attributes:
        name: The name that `load_dataset` knows after `import hf_datasets`, if the rows come from one.
        title: The title of the card, instead of the source card's.
        repo_id: `ORG/NAME` on the Hub.
        license: The identifier of the license, instead of the source card's.
        descriptions: Configuration -> the builder's description of it.
        others: Configurations of the name that are not published.
        citation: BibTeX.
        homepage: Where the paper and its data are presented.
    """

    name: str | None = None
    title: str | None = None
    repo_id: str | None = None
    license: str | None = None
    descriptions: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[str] = ()
    citation: str | None = None
    homepage: str | None = None


def card_text(
    path: Path,
    splits: Splits,
    *,
    provenance: Mapping[str, object],
    rejections: Sequence[Rejection],
    about: About | None = None,
    sections: Mapping[str, str] | None = None,
) -> str:
    """The card of a published folder.

    Args:
        path: The source card.
        splits: What was written, of the default configuration first.
        provenance: Facts of the origin.
        rejections: The refused rows.
        about: What else is known.
        sections: Heading -> text of sections to add at the end.

    Returns:
        The Markdown text with its YAML header.

    Raises:
        FileNotFoundError: There is no source card.
        ValueError: Its header is unreadable, or it lacks the marks of the counts.
    """
    about = about or About()
    card = read_card(path)
    names = list(dict.fromkeys(name for (name, _), split in splits.items() if split.num_rows))
    before, start, rest = kept_for(names, card.text).partition(COUNTS_START)
    _, end, after = rest.partition(COUNTS_END)
    if not start or not end:
        raise ValueError(f"{path} lacks the marks {COUNTS_START!r} and {COUNTS_END!r} between which the counts go")
    before, after = (_with_configurations(part, splits, about) for part in (before, after))
    body = f"{before}{start}\n{_row_counts(splits, provenance, rejections)}\n{end}{after}"
    body = _on_the_hub(body, names, about)
    if about.title:
        body = re.sub(r"(?m)^# [^:\n]*", lambda _: f"# {about.title}", body, count=1)
    added = dict(sections or {})
    if about.citation:
        where = f"The paper and its data: <{about.homepage}>\n\n" if about.homepage else ""
        added["Citation"] = f"{where}```bibtex\n{about.citation}\n```"
    body += "".join(f"\n## {heading}\n\n{text}\n" for heading, text in added.items())
    body = re.sub(r"\n{3,}", "\n\n", body)
    _fill_header(card.data, splits, names, about)
    return f"---\n{card.data.to_yaml()}\n---\n{body}"


def read_card(path: Path) -> DatasetCard:
    """Read a source card.

    Raises:
        FileNotFoundError: There is none.
        ValueError: Its YAML header is unreadable, or a field of text has another type.
    """
    if not path.is_file():
        raise FileNotFoundError(f"the card {path} is not a file; name a Markdown file with a YAML header")
    try:
        card: DatasetCard = DatasetCard.load(path)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path} has no readable YAML header: {' '.join(str(error).split())}") from None
    for name, value in card.data.to_dict().items():
        texts = value if isinstance(value, list) and name != "pretty_name" else [value]
        if name in TEXT_FIELDS and not all(isinstance(text, str) for text in texts):
            raise ValueError(
                f"{path} has {name}: {value!r} in its YAML header; write text, in quotes where YAML "
                "reads something else"
            )
    return card


def kept_for(names: Iterable[str], text: str) -> str:
    r"""The parts of a source card that are about all configurations, or about one of `names`.

    Example:
        >>> lines = ["all", "| own | <!-- only own* -->", "<!-- only mini -->", "small", "<!-- end only -->"]
        >>> kept_for(["mini"], "\n".join(lines)).split()
        ['all', 'small']
    """
    names, kept = list(names), []
    blocks: list[bool] = []
    for line in text.splitlines(keepends=True):
        mark = ONLY.search(line)
        fits = mark is None or any(
            any(fnmatchcase(name, pattern.removeprefix("!")) for name in names) != pattern.startswith("!")
            for pattern in mark[1].split()
        )
        if line.strip() == END_ONLY:
            del blocks[-1:]
        elif mark and line.strip() == mark[0].strip():
            blocks.append(fits)
        elif fits and all(blocks):
            kept.append(ONLY.sub("", line))
    return "".join(kept)


def one_line(value: object) -> str:
    """A value as a text of one line without markup: values come from data and configurations."""
    text = " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;")
    return MARKUP.sub(r"\\\g<0>", text)


def _row_counts(splits: Splits, provenance: Mapping[str, object], rejections: Sequence[Rejection]) -> str:
    rows = [f"| `{name}` | {split} | {written.num_rows:,} |" for (name, split), written in splits.items()]
    facts = [f"* {one_line(key)}: {one_line(value)}" for key, value in provenance.items()]
    empty = [f"{name}/{split}" for (name, split), written in splits.items() if not written.num_rows]
    if empty:
        facts.append(f"* without rows, so not loadable: {one_line(', '.join(empty))}")
    if rejections:
        facts.append(f"* {one_line(summarise(list(rejections)))}")
    return "\n".join(["| configuration | split | rows |", "|---|---|---:|", *rows, "", *facts]).rstrip()


def _with_configurations(body: str, splits: Splits, about: About) -> str:
    """The card with its section of configurations written anew from the data; without the section, as it is."""
    rows: dict[str, int] = {}
    for (name, _), written in splits.items():
        rows[name] = rows.get(name, 0) + written.num_rows
    rows = {name: count for name, count in rows.items() if count}
    lines = ["| name | rows |", "|---|---:|"]
    if about.descriptions:
        lines = ["| name | rows | what it holds |", "|---|---:|---|"]
    for number, (name, count) in enumerate(rows.items()):
        what = f" {one_line(about.descriptions.get(name, ''))} |" if about.descriptions else ""
        lines.append(f"| `{name}`{'' if number else ' (default)'} | {count:,} |{what}")
    if about.descriptions:
        lines += ["", DESCRIBED_THERE]
    if about.others and about.name:
        others = ", ".join(f"`{name}`" for name in about.others)
        lines += [
            "",
            f"Not in this repository: {others}. The package `subtle-video` makes them: after "
            f'`import hf_datasets`, `load_dataset("{about.name}", NAME)` with your copy of the annotations.',
        ]
    text = "\n".join(lines)
    section = re.compile(rf"(?ms)^## {CONFIGURATIONS_SECTION}\n.*?(?=^## |\Z)")
    return section.sub(lambda _: f"## {CONFIGURATIONS_SECTION}\n\n{text}\n\n", body, count=1)


def _on_the_hub(body: str, names: Sequence[str], about: About) -> str:
    """The card with the repository's own name in its code, and the default configuration's origin instead of mini."""
    if about.repo_id:
        body = CALL.sub(lambda call: f'{call[1]}{about.repo_id}"', body)
        body = ORGANIZATION.sub(about.repo_id.partition("/")[0], body)
    origin = names[0].partition("-")[0] if names else "mini"
    return MINIATURE_CALL.sub(lambda call: f'{call[1]}"{origin}', body)


def _fill_header(data: Any, splits: Splits, names: Sequence[str], about: About) -> None:
    if about.title:
        data["pretty_name"] = about.title
    _fill_license(data, about)
    if any(name.partition("-")[0] in RENDERED for name in names) and SYNTHETIC not in data.get("tags", ()):
        data["tags"] = [*(data.get("tags") or ()), SYNTHETIC]
    data["size_categories"] = [size_category(sum(written.num_rows for written in splits.values()))]
    infos: dict[str, DatasetInfo] = {}
    configs: list[dict[str, Any]] = []
    for name in names:
        own = {split: written for (of, split), written in splits.items() if of == name and written.num_rows}
        infos[name] = DatasetInfo(
            features=next(iter(own.values())).features,
            splits=SplitDict(
                {split: SplitInfo(split, written.num_bytes, written.num_rows) for split, written in own.items()}
            ),
            download_size=sum(written.download_size for written in own.values()),
            dataset_size=sum(written.num_bytes for written in own.values()),
        )
        files = [{"split": split, "path": f"{name}/{split}-*.parquet"} for split in own]
        configs.append({"config_name": name, "data_files": files} | ({} if configs else {"default": True}))
    data["configs"] = configs
    data.pop("dataset_info", None)
    DatasetInfosDict(infos).to_dataset_card_data(data)


def _fill_license(data: Any, about: About) -> None:
    if about.license:
        data["license"] = about.license
        data["license_name"] = None
        data["license_link"] = LICENSES.get(about.license)
    elif about.repo_id and data.get("license") == "other":
        data["license_link"] = f"{HUB}/{about.repo_id}#licenses"


def size_category(num_rows: int) -> str:
    """The Hub's name for a number of rows.

    Example:
        >>> size_category(999), size_category(1_000), size_category(180_000)
        ('n<1K', '1K<n<10K', '100K<n<1M')
    """
    return next((name for limit, name in SIZE_CATEGORIES.items() if num_rows < limit), "1B<n<10B")
