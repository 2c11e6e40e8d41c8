"""Reading what chat models write: numbered lists, labeled lines, JSON that is slightly broken."""

import re

from hf_datasets.generation.repair import read_object

LIST_NUMBER = re.compile(r"(?:^|(?<=[\s\"\u201c]))\(?(\d{1,2})\s?[.):]\s+")
CODE_FENCE = re.compile(r"```\w*\n?|```")
QUOTES = "\"'\u201c\u201d\u2018\u2019 \t"


def numbered_items(text: str) -> list[str]:
    r"""The items of a numbered list, in one line or many, written `1.`, `1)`, `(1)` or `1:`, without quotes.

    Numbers count only where they continue the sequence, so "at 2. 30" inside an item does not split it.

    Example:
        >>> numbered_items('Sure:\n1. "A boy gets up."\n2. A boy stands up.')
        ['A boy gets up.', 'A boy stands up.']
        >>> numbered_items("1) Where to? 2) How fast?")
        ['Where to?', 'How fast?']
        >>> numbered_items("no list")
        []
    """
    starts: list[re.Match[str]] = []
    for match in LIST_NUMBER.finditer(text):
        if int(match[1]) == len(starts) + 1:
            starts.append(match)
    ends = [match.start() for match in starts[1:]] + [len(text)]
    items = (text[start.end() : end] for start, end in zip(starts, ends, strict=False))
    return [item for item in (clean(item.partition("\n\n")[0]) for item in items) if item]


def after_list(text: str) -> str:
    r"""What follows a numbered list: the text behind the first blank line after its last item, or its first line.

    Example:
        >>> after_list("1. To the left.\n2. Slowly.\n\nA man walks to the left.")
        'A man walks to the left.'
        >>> after_list("1. To the left. 2. Slowly.\n**Description:** A man walks to the left.")
        'A man walks to the left.'
    """
    matches = list(LIST_NUMBER.finditer(text))
    rest = text[matches[-1].end() :] if matches else text
    tail = rest.partition("\n\n")[2] or rest.strip().partition("\n")[2] if matches else rest
    label = r"^[*#\s]*(?:detailed |dynamic )*description\s*(?::\s*\*\*|\*\*\s*:|:)"
    return clean(re.sub(label, "", tail, flags=re.IGNORECASE))


def labeled_sections(text: str, labels: tuple[str, ...]) -> dict[str, str]:
    r"""The values behind labels such as `Background:`, in any case and order, over several lines.

    Example:
        >>> labeled_sections("background: a room\nwith a lamp\nDESC: A man reads.", ("Background", "Desc"))
        {'Background': 'a room with a lamp', 'Desc': 'A man reads.'}
    """
    names = "|".join(re.escape(label) for label in labels)
    # Within a line: \W would match across line ends, in quadratic time.
    pattern = re.compile(rf"^[^\w\n]*({names})[^\w\n]*:\s*", re.IGNORECASE | re.MULTILINE)
    matches = list(pattern.finditer(text))
    ends = [match.start() for match in matches[1:]] + [len(text)]
    spelling = {label.lower(): label for label in labels}
    return {
        spelling[match[1].lower()]: clean(text[match.end() : end]) for match, end in zip(matches, ends, strict=False)
    }


def json_strings(text: str) -> dict[str, str]:
    r"""The strings of a JSON object, fenced or slightly broken (a comma is missing in the paper's own example).

    Example:
        >>> json_strings('```json\n{"original": "A.", "1": "A b."\n"2": "A c."}\n```')
        {'original': 'A.', '1': 'A b.', '2': 'A c.'}
        >>> json_strings("no object")
        {}
    """
    found = read_object(text) or {}
    return {str(key): clean(value) for key, value in found.items() if isinstance(value, str)}


def clean(text: str) -> str:
    """One line without fences and surrounding quotes."""
    return " ".join(CODE_FENCE.sub(" ", text).split()).strip(QUOTES)
