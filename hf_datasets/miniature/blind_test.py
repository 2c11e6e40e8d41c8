"""A test for people: pairs of clips on contact sheets, to be told apart without knowing their labels."""

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
from PIL import Image

from hf_datasets.drafts import write_json
from hf_datasets.miniature.competitions import MiniatureConfig, Shot, plan_competitions
from hf_datasets.miniature.differences import DIFFERENCES, difference_between
from hf_datasets.miniature.render import film_strips

SAME_OR_DIFFERENT = ("same", "different")
SOLUTIONS_FILE = "solutions.json"
ROWS, COLUMNS = 3, 8
"""The frames of a clip on its sheet."""
MAGNIFICATION = 2
MARGIN_PIXELS = 12  # pixels between the clips


@dataclass(frozen=True)
class Pair:
    """Two clips of different long videos.

    Attributes:
        shots: The clips.
        difference: In what their labels differ, see `differences.difference_between`; None where they are the same.
    """

    shots: tuple[Shot, Shot]
    difference: str | None


def draw_pairs(
    config: MiniatureConfig, num_pairs: int, seed: int, of_labels: Collection[str] | None = None
) -> list[Pair]:
    """Pairs of test clips, every second one of the same label, the others of each kind of difference in turn.

    Args:
        config: What is rendered.
        num_pairs: 1 or more.
        seed: Decides which, and their order.
        of_labels: One label of each pair is of these; None: any.

    Raises:
        ValueError: There are no pairs of some kind.
    """
    generator = np.random.default_rng(seed)
    clips: dict[str, list[tuple[str, Shot]]] = {}
    for competition in plan_competitions(config):
        if competition.split == "test":
            for shot in competition.shots:
                clips.setdefault(shot.action.label, []).append((competition.video_id, shot))
    kinds: dict[str | None, list[tuple[str, str]]] = {None: [(label, label) for label in clips]}
    for pair in permutations(clips, 2):
        kinds.setdefault(difference_between(*pair) or "more", []).append(pair)
    if of_labels is not None:
        wanted = {kind: [pair for pair in pairs if not {*pair}.isdisjoint(of_labels)] for kind, pairs in kinds.items()}
        kinds = {kind: pairs for kind, pairs in wanted.items() if pairs}
    differences = [kind for kind in DIFFERENCES if kind in kinds]
    if not differences:
        raise ValueError("no two labels of the test clips differ in one thing only; give more labels")
    pairs = []
    for number in range(num_pairs):
        kind = None if number % 2 else differences[number // 2 % len(differences)]
        candidates = kinds[kind]
        labels = candidates[int(generator.integers(len(candidates)))]
        found = [
            (first, second)
            for video, first in clips[labels[0]]
            for other_video, second in clips[labels[1]]
            if video != other_video
        ]
        if not found:
            raise ValueError(f"the test clips of {labels[0]} and {labels[1]} are all in one video; give more videos")
        pairs.append(Pair(found[int(generator.integers(len(found)))], kind))
    return [pairs[index] for index in generator.permutation(num_pairs)]


def write_blind_test(
    output_dir: Path,
    config: MiniatureConfig,
    *,
    num_pairs: int = 40,
    seed: int = 0,
    of_labels: Collection[str] | None = None,
) -> list[Path]:
    """Write the sheets, one for each pair with 24 frames of each clip, and the solutions beside them.

    The frames are drawn, not decoded: what the encoder takes away is not in the test.

    Args:
        output_dir: A folder, made where it is missing.
        config: What is rendered, such as `HARD`.
        num_pairs: 1 or more.
        seed: Decides which pairs.
        of_labels: One label of each pair is of these; None: any.

    Returns:
        The sheets.

    Raises:
        ValueError: `num_pairs` is below 1, or there are no such pairs.
    """
    if num_pairs < 1:
        raise ValueError(f"{num_pairs} pairs: at least 1 is needed")
    output_dir.mkdir(parents=True, exist_ok=True)
    pairs = draw_pairs(config, num_pairs, seed, of_labels)
    sheets = []
    for number, pair in enumerate(pairs, 1):
        sheets.append(output_dir / f"pair_{number:03d}.png")
        _sheet(pair, config.size).save(sheets[-1])
    write_json(output_dir / SOLUTIONS_FILE, [pair.difference for pair in pairs])
    return sheets


def _sheet(pair: Pair, size: int) -> Image.Image:
    clips = [film_strips([shot], size, ROWS * COLUMNS) for shot in pair.shots]
    sheet = Image.new("RGB", (COLUMNS * size, 2 * ROWS * size + MARGIN_PIXELS), (230, 230, 230))
    for row in range(2 * ROWS):
        clip, own_row = divmod(row, ROWS)
        part = clips[clip].crop((own_row * COLUMNS * size, 0, (own_row + 1) * COLUMNS * size, size))
        sheet.paste(part, (0, row * size + clip * MARGIN_PIXELS))
    return sheet.resize((MAGNIFICATION * sheet.width, MAGNIFICATION * sheet.height), Image.Resampling.NEAREST)


def read_answers(path: Path) -> dict[int, str]:
    """The answers in a file of lines such as `1 same` and `2 different`.

    Raises:
        ValueError: A line is not of this form.
    """
    answers = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            number, _, answer = line.strip().partition(" ")
            if not number.isdecimal() or answer.strip() not in SAME_OR_DIFFERENT:
                raise ValueError(f"{path}: the line {line!r} is not a number and one of {', '.join(SAME_OR_DIFFERENT)}")
            answers[int(number)] = answer.strip()
    return answers


def score(output_dir: Path, answers: Mapping[int, str]) -> dict[str, tuple[int, int]]:
    """Compare answers with the solutions.

    Args:
        output_dir: A folder that `write_blind_test` wrote.
        answers: Number of a pair, from 1 -> "same" or "different".

    Returns:
        "same" or the kind of difference -> how many answers were right, of how many pairs.

    Raises:
        ValueError: An answer is missing or is neither of the two words.
    """
    solutions: list[str | None] = json.loads((output_dir / SOLUTIONS_FILE).read_text(encoding="utf-8"))
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for number, difference in enumerate(solutions, 1):
        answer = answers.get(number)
        if answer not in SAME_OR_DIFFERENT:
            raise ValueError(f"pair {number} has the answer {answer!r}; give same or different for each pair")
        kind = difference or "same"
        total[kind] += 1
        right[kind] += (answer == "same") == (difference is None)
    return {kind: (right[kind], total[kind]) for kind in ("same", *DIFFERENCES) if total[kind]}
