"""A filter is the condition that it says, and nothing else is given to the store."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_models.index.filters import checked_filter
from hf_models.index.store import IndexedModel, MomentIndex, moment_schema, quoted

LABELS = ["red", "Red", "it's", "back\\slash", "a\nb", None]
WORDS = (
    *("label", "'red'", "1", "=", "<", "AND", "OR", "NOT", "IN", "LIKE"),
    *("lower(", "(", ")", ",", "--", ";", "/*", "*/"),
)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Moments of one second each, one for each label."""
    index = MomentIndex.create(tmp_path_factory.mktemp("filtered"))
    index.add(IndexedModel("k", "m", {}, 2, "/"))
    rows = [
        {"moment_id": str(place), "video": f"v{place}.mp4", "label": label, "vector": [0.0, 1.0]}
        | {"start_seconds": float(place), "end_seconds": place + 1.0}
        for place, label in enumerate(LABELS)
    ]
    table = index.moments("k")
    table.add(pa.Table.from_pylist(rows, schema=moment_schema(2)))
    return table


def found(table, condition):
    rows = table.search().where(checked_filter(condition)).limit(None).to_list()
    return sorted(int(row["moment_id"]) for row in rows)


@pytest.mark.parametrize(
    ("condition", "places"),
    [
        ("label = 'red'", [0]),
        ("LOWER(label) = 'red' AND NOT label = 'red'", [1]),
        ("label = 'it''s' OR label IS NULL", [2, 5]),
        (f"label = {quoted(LABELS[3])}", [3]),
        (f"label IN ({quoted(LABELS[4])}, 'none')", [4]),
        ("start_seconds BETWEEN 1 AND 2", [1, 2]),
        ("label LIKE '%e%' -- a note", [0, 1]),
        ("contains(video, '5') or starts_with(upper(video), 'V4')", [4, 5]),
        ("-start_seconds * 2 < 1 - 10.5 and (end_seconds) / 2 <> 3", []),
        ("end_seconds - start_seconds = 1 AND coalesce(label, 'x') = 'x'", [5]),
    ],
)
def test_a_filter_finds_what_it_says(table, condition, places):
    assert found(table, condition) == places


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        ("1=1) OR (1=1", "is not understood"),
        ("label = 'red'; DROP TABLE moments", "is not understood"),
        ("repeat('x', 2000000000) = 'x'", "REPEAT is not allowed"),
        ("evil(label) = 1", "evil is not allowed"),
        ("label IN (SELECT label FROM moments)", "SUBQUERY is not allowed"),
        ("vector IS NULL", "there is no column vector"),
        ("other.label = 'red'", "there is no column other.label"),
        ('label = "red"', 'there is no column "red"'),
        ("CAST(label AS INT) = 1", "CAST is not allowed"),
        ("(" * 5000 + "1=1" + ")" * 5000, "is not understood"),
        (" AND ".join(["1=1"] * 500), "more than 200 levels"),
        ("label = '" + "x" * 30_000 + "'", "it may have 20,000"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_a_filter_does_not_need_is_refused_in_a_line(condition, named):
    with pytest.raises(ValueError, match=r"^the filter [^\n]*$") as refused:
        checked_filter(condition)
    assert named in str(refused.value)
    assert len(str(refused.value)) < 700


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=20))
def test_a_text_stays_the_text_that_it_is(text):
    assert checked_filter(f"label = {quoted(text)}") == f"label = {quoted(text)}"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_a_filter_cannot_end_the_condition_that_it_stands_in(text):
    try:
        condition = checked_filter(text)
    except ValueError:
        return
    inside = condition.replace("'red'", "")
    assert inside.count("(") == inside.count(")")
    assert not {"--", ";", "/*", "*/"} & {
        inside[place : place + width] for place in range(len(inside)) for width in (1, 2)
    }
    assert checked_filter(condition) == condition
