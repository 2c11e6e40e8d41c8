"""FineGym's annotation: absolute seconds, both clip-name forms, and what its files leave out."""

import json

import pytest

from hf_datasets.records import Clip, Rejection
from hf_datasets.sources.finegym import clip_id, read_categories, read_finegym

DESCRIPTIONS = {
    "0": "(Vault) round-off, flic-flac with 0.5 turn on, stretched salto forward with 1.5 turn off",
    "40": "(Floor Exercise) switch leap with 0.5 turn",
    "180": "(Balance Beam) salto backward tucked",
    "216": "(Balance Beam) salto backward tucked",
}
VIDEO = "-Hv_d_vqJ5A"
ANNOTATION = {
    VIDEO: {
        "E_001781_001789": {
            "event": 1,
            "timestamps": [[1781.76, 1789.16]],
            "segments": {"A_0000_0006": {"stages": 3, "timestamps": [[0.5, 2.0], [2.0, 3.0], [3.0, 6.25]]}},
        },
        "E_002184_002237": {
            "event": 2,
            "timestamps": [[2184.0, 2237.5]],
            "segments": {
                "A_0035_0036": {"stages": 1, "timestamps": [[35.1, 36.4]]},
                "A_0040_0041": {"stages": 1, "timestamps": [[40.0, 41.0]]},
                "A_0050_0060": {"stages": 1, "timestamps": [[50.0, 60.0]]},
                "A_0048_0047": {"stages": 1, "timestamps": [[48.0, 47.0]]},
                "A_0049_0050": {"stages": 1, "timestamps": [[49.0, None]]},
            },
        },
        "E_003000_003100": {"event": 3, "timestamps": [[3000, 3100]], "segments": None},
    }
}
VAULT, LEAP = f"{VIDEO}_E_001781_001789_A_0000_0006", f"{VIDEO}_E_002184_002237_A_0035_0036"


@pytest.fixture
def files(tmp_path):
    annotation = tmp_path / "finegym_annotation_info_v1.1.json"
    annotation.write_text(json.dumps(ANNOTATION))
    elements = tmp_path / "gym288_train_element_v1.1.txt"
    elements.write_text(f"{VAULT} 0\n{VIDEO}_002184_002237_0035_0036   40\n")
    return annotation, elements


def read(annotation, *elements, **options):
    return list(read_finegym(annotation, elements, descriptions=DESCRIPTIONS, **options))


def rejected(records):
    return [record.reason for record in records if isinstance(record, Rejection)]


def test_times_relative_to_the_event_become_seconds_of_the_long_video(files):
    assert [record for record in read(*files) if isinstance(record, Clip)] == [
        Clip(VAULT, VIDEO, "0", 1782.26, 1788.01),
        Clip(LEAP, VIDEO, "40", pytest.approx(2219.1), pytest.approx(2220.4)),
    ]


def test_unusable_entries_are_rejected_with_their_reason(files):
    reasons = rejected(read(*files))
    assert [reason.partition(":")[0] for reason in reasons] == ["no element label"] + 3 * ["unusable span"]
    assert "A_0040_0041" in reasons[0]
    assert "do not lie in their event of 53.50 s" in reasons[1]


def test_unusable_lines_are_rejected_with_file_and_line(files):
    annotation, elements = files
    extra = elements.with_name("gym288_val_element.txt")
    other = f"{VIDEO}_E_009999_009999_A_0000_0001"
    extra.write_text(f"{VAULT} 40\n{LEAP}\nclip 3\n{VIDEO}_002184_002237_0040_0041 39\n{other} 0\n")
    records = read(annotation, elements, extra)
    reasons = rejected(records)
    assert (
        "duplicate clip id: gym288_val_element.txt, line 1 repeats gym288_train_element_v1.1.txt, line 1" in reasons[0]
    )
    assert reasons[1].startswith("malformed line: gym288_val_element.txt, line 2")
    assert reasons[2].startswith("malformed clip id: gym288_val_element.txt, line 3")
    keys = [record.key for record in records if isinstance(record, Rejection)]
    assert keys[1:3] == ["gym288_val_element.txt, line 2", "gym288_val_element.txt, line 3"]
    assert all(keys)
    assert "class outside the label set: gym288_val_element.txt, line 4 has '39'" in reasons
    assert reasons[-1].startswith("not annotated: gym288_val_element.txt, line 5")


def test_both_clip_name_forms_are_one_id():
    assert clip_id(f"{VIDEO}_002184_002237_0035_0036") == clip_id(LEAP) == LEAP
    with pytest.raises(ValueError, match="'clip' is not"):
        clip_id("clip")


def test_classes_of_other_lists_are_found_by_their_text(files):
    annotation, elements = files
    lists = elements.rename(elements.with_name("gym99_train_element_v1.1.txt"))
    lists.write_text(f"{VAULT} 7\n{LEAP} 9\n")
    with pytest.raises(ValueError, match="pass gym99_categories"):
        read(annotation, lists)
    categories = elements.with_name("gym99_categories.txt")
    categories.write_text(
        "Clabel:   7; set:  1; Glabel:   1; (VT) round-off, flic-flac with 0.5 turn on, "
        "stretched salto forward with 1.5 turn off\n"
        "Clabel: 9; set: 21; Glabel: 55; (FX) switch leap (leap forward with leg change to cross split) with 0.5 turn\n"
        "Clabel: 180; set: 33; Glabel: 1; (BB) salto backward tucked\n"
        "Clabel: 3; set: 33; Glabel: 1; (BB) salto backward tucked\n"
        "Clabel: 4; set: 33; Glabel: 1; (BB) another\n"
    )
    assert read_categories(categories, DESCRIPTIONS) == {"7": "0", "9": "40", "180": "180", "3": "180"}
    found = read(annotation, lists, categories=categories)
    assert [record.label for record in found if isinstance(record, Clip)] == ["0", "40"]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"{", b"[]", b"{}"])
def test_an_annotation_that_is_empty_or_in_another_encoding_names_the_file(files, content):
    files[0].write_bytes(content)
    with pytest.raises(ValueError, match=r"finegym_annotation_info_v1\.1\.json is not"):
        read(*files)


@pytest.mark.parametrize(("content", "says"), [(b"", "is empty"), (b"caf\xe9 1", "is not UTF-8")])
def test_an_element_list_that_is_empty_or_in_another_encoding_names_the_file(files, content, says):
    files[1].write_bytes(content)
    with pytest.raises(ValueError, match=rf"gym288_train_element_v1\.1\.txt {says}"):
        read(*files)


@pytest.mark.parametrize(
    ("line", "says"), [("7 (VT) text", "line 1"), ("Clabel: 1; set: 1; Glabel: 1; (VT) no", "no line")]
)
def test_a_categories_file_of_another_kind_is_refused(tmp_path, line, says):
    path = tmp_path / "categories.txt"
    path.write_text(line)
    with pytest.raises(ValueError, match=says):
        read_categories(path, DESCRIPTIONS)
