"""What a published folder holds: a card of its own rows, metadata for other tools, and code that rebuilds the rows."""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import DatasetCard, DatasetCardData

from hf_datasets.publish import COUNTS_END, COUNTS_START, write_folder
from hf_datasets.publishing.__main__ import main
from hf_datasets.publishing.rebuilding import rebuild, row_differences
from hf_datasets.registry import TITLES
from subtle.hub.publish import prepare_dataset as prepare

ROOT = Path(__file__).parents[2]
NAMES = ("tfcovr", "youcook2_comp", "charades_fig")  # one of each source card
PAPERS = {
    "tfcovr": ("2506.05274", "https://github.com/UCF-CRCV/TF-CoVR"),
    "youcook2_comp": ("2504.03970", "https://github.com/google-deepmind/video_comp"),
    "charades_fig": ("2410.08593", "https://github.com/hlchen23/VERIFIED"),
}
REQUIRED = {"license", "license_link", "language", "pretty_name", "size_categories", "task_categories", "tags",
            "configs", "dataset_info"}  # fmt: skip


@pytest.fixture(scope="module")
def published(miniature, tmp_path_factory):
    """Name -> its published folder, of the small miniature, with whatever videos there are; tests only read them."""
    root = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", root / "cache")
        for name in NAMES:
            prepare(name, f"org/{name}", root / name, data_dir=str(miniature), videos=True)
    return {name: root / name for name in NAMES}


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def header_of(folder):
    return yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])


def rows_of(folder, config):
    files = sorted((folder / config).glob("*.parquet"))
    return [row for path in files for row in pq.read_table(path).to_pylist()]


def test_the_counts_of_a_card_are_those_of_its_data(published, name):
    text, header = (published[name] / "README.md").read_text(), header_of(published[name])
    counts = re.findall(r"^\| `([\w-]+)` \| (\w+) \| ([\d,]+) \|$", text, re.M)
    counted = {(config, split): int(rows.replace(",", "")) for config, split, rows in counts}
    described = dict(re.findall(r"^\| `([\w-]+)`(?: \(default\))? \| ([\d,]+) \| \w.* \|$", text, re.M))
    infos = {info["config_name"]: info for info in header["dataset_info"]}
    assert {config for config, _ in counted} == set(infos) == set(described)
    assert header["configs"][0]["config_name"] == "mini"
    for config, info in infos.items():
        opened = datasets.load_dataset(str(published[name]), config)
        lengths = {split: len(rows) for split, rows in opened.items()}
        assert lengths == {split: count for (of, split), count in counted.items() if of == config}
        assert lengths == {split["name"]: split["num_examples"] for split in info["splits"]}
        assert described[config] == f"{sum(lengths.values()):,}"
        files = sum(path.stat().st_size for path in (published[name] / config).glob("*.parquet"))
        assert info["download_size"] == files
        assert datasets.Features._from_yaml_list(info["features"]) == next(iter(opened.values())).features
    assert header["size_categories"] == ["n<1K"]
    assert sum(counted.values()) < 1_000


def test_a_card_is_about_what_is_published_and_names_its_repository(published, name):
    text = (published[name] / "README.md").read_text()
    body = text.split("---\n", 2)[2]
    configs = {config["config_name"] for config in header_of(published[name])["configs"]}
    assert body.lstrip().startswith(f"# {TITLES[name]} (miniature): ")
    assert f'load_dataset("org/{name}"' in body
    called = re.findall(rf'load_dataset\("org/{name}", "([\w-]+)"', body)
    assert set(called) <= configs
    for absent in (
        "ORG/NAME",
        "<!-- only",
        "<!-- end only",
        "on your machine",
        "data_dir=",
        "Your own clips",
        "\n\n\n",
    ):
        assert absent not in body, absent
    assert "`release`" in body.partition("Not in this repository:")[2].partition("\n")[0]
    assert "```bibtex\n@" in body
    fields = body.partition("## Fields")[2].partition("\n## ")[0]
    for info in header_of(published[name])["dataset_info"]:
        assert not [column["name"] for column in info["features"] if f"`{column['name']}`" not in fields]


def test_the_header_of_a_card_says_what_made_the_rows_and_survives_the_hubs_own_class(published, name):
    header, card = header_of(published[name]), DatasetCard.load(published[name] / "README.md")
    assert header.keys() >= REQUIRED
    assert yaml.safe_load(DatasetCardData(**header).to_yaml()) == header == card.data.to_dict()
    assert header["license"] == "apache-2.0"
    assert header["license_link"].startswith("https://")
    assert header["pretty_name"] == f"{TITLES[name]} (miniature)"
    assert "synthetic" in header["tags"]
    assert header["annotations_creators"] == header["language_creators"] == ["machine-generated"]


def test_the_code_in_a_card_runs_on_the_published_copy(published, name, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (published[name] / "README.md").read_text(), re.S)
    found = {}
    exec("\n".join(blocks).replace(f"org/{name}", str(published[name])), found)
    assert capsys.readouterr().out.strip()
    if "frames" in found:
        assert found["frames"][0].shape == (32, 32, 3)
    stream = datasets.load_dataset(str(published[name]), split="train", streaming=True)
    assert list(stream) == list(datasets.load_dataset(str(published[name]), split="train"))


@pytest.mark.parametrize("name", ["youcook2_comp", "charades_fig"])
def test_a_card_without_videos_says_where_they_are_and_its_code_joins_them(published, miniature, tmp_path, name):
    prepare(name, f"org/{name}", tmp_path / name, data_dir=str(miniature))
    assert not list(tmp_path.glob("*/*-videos"))
    text, found = (tmp_path / name / "README.md").read_text(), {}
    assert "[org/tfcovr](https://huggingface.co/datasets/org/tfcovr)" in text
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    places = {f"org/{name}": tmp_path / name, "org/tfcovr": published["tfcovr"]}
    code = re.sub(r"org/\w+", lambda repository: str(places[repository[0]]), "\n".join(blocks))
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, found)
    assert found["frames"][0].shape == (32, 32, 3)


def test_a_card_says_that_the_three_miniatures_of_moments_are_one(published):
    text = (published["charades_fig"] / "README.md").read_text()
    for name in ("charades_fig", "didemo_fig", "activitynet_fig"):
        assert f"[{name}](https://huggingface.co/datasets/org/{name})" in text
    assert "the same rows, byte for byte" in " ".join(text.split())


def test_a_card_cites_the_paper_by_its_number_and_the_official_code(published, name):
    (number, code), text = PAPERS[name], (published[name] / "README.md").read_text()
    assert f"https://arxiv.org/abs/{number}" in text
    assert code in text
    assert f"eprint = {{{number}}}" in text.rpartition("```bibtex")[2]
    (reference,) = [
        paper
        for paper in yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"]
        if {"type": "other", "value": f"arXiv:{number}"} in paper.get("identifiers", [])
    ]
    assert reference["repository-code"] == code


def test_a_card_names_no_file_that_is_not_there(published, name):
    text = (published[name] / "README.md").read_text()
    named = set(re.findall(r"\b[\w/-]+\.(?:parquet|json|yaml|txt)\b", text))
    assert not [file for file in named if not (published[name] / file).is_file()]
    assert not (published[name] / "eval.yaml").exists(), "public mteb does not have our tasks"


def test_files_have_a_page_index_chunks_by_content_and_videos_as_they_are(published):
    for path in published["tfcovr"].glob("*/*.parquet"):
        file = pq.read_metadata(path)
        assert b"content_defined_chunking" in file.metadata
        columns = [file.row_group(0).column(number) for number in range(file.num_columns)]
        assert all(column.has_offset_index for column in columns)
        compressed = {column.path_in_schema: column.compression for column in columns}
        assert compressed.get("video.bytes", "UNCOMPRESSED") == "UNCOMPRESSED"
        assert set(compressed.values()) <= {"SNAPPY", "UNCOMPRESSED"}


def test_nothing_published_names_a_folder_of_this_machine(published, miniature, name):
    files = [path for path in published[name].rglob("*") if path.is_file()]
    assert not [path for path in files if str(miniature).encode() in path.read_bytes()]
    assert not [path for path in files if str(ROOT).encode() in path.read_bytes()]
    assert not list(published[name].glob("*.py")), "datasets opens no repository with a script of its name"


def test_the_published_code_rebuilds_the_rows_in_a_process_without_our_packages(published, tmp_path):
    folders = [
        f"{folder}:{','.join(path.name for path in sorted(folder.glob('mini*')))}" for folder in published.values()
    ]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": sysconfig.get_paths()["purelib"],
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(tmp_path / "theirs"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-S", str(ROOT / "tests/fixtures/rebuild_folders.py"), str(tmp_path / "rebuilt"), *folders],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    for name, folder in published.items():
        for config in sorted(path.name for path in folder.glob("mini*")):
            assert f"{config}: equal to the published rows" in done.stdout
            made = sorted(
                path.relative_to(tmp_path / "rebuilt" / name)
                for path in (tmp_path / "rebuilt" / name / config).iterdir()
            )
            assert made == sorted(path.relative_to(folder) for path in (folder / config).iterdir())
        assert not list(folder.rglob("__pycache__"))


def test_a_release_is_published_without_videos_under_the_table_of_licenses_and_rebuilt_from_its_files(tmp_path):
    files, folder = tmp_path / "release", tmp_path / "out"
    files.mkdir()
    (files / "train.csv").write_text(
        "query_video,target_video,label1,label2,modification\na_1,b_1,40,41,show with 1 turn\nc_1,,40,41,show it\n"
    )
    (files / "test.csv").write_text(
        "query_id,query_video,modification,target_video,target_videos_ids\nq,c_1,show it,d_1,\"['d_1']\"\n"
    )
    configs = ["release", "release-clips"]
    prepare("tfcovr", "org/real", folder, configs=configs, data_dir=str(files))
    header, body = header_of(folder), (folder / "README.md").read_text()
    assert header["pretty_name"] == "TF-CoVR"
    assert (header["license"], header["license_name"]) == ("other", "see-the-table-of-licenses")
    assert header["license_link"] == "https://huggingface.co/datasets/org/real#licenses"
    assert "MIT (card of `ucf-crcv/TF-CoVR`)" in body
    assert "stick figures" not in body
    assert "rows were refused" in body
    assert pq.read_metadata(folder / "rejections.parquet").num_rows > 0
    assert 'load_dataset("org/real", "release-clips", split="test")' in body
    assert "--check --data_dir FOLDER" in body
    assert str(tmp_path) not in body
    (files / "charades_fig_test.jsonl").write_text(
        '{"video": "AKKWU", "time": [13, 38], "desc_id": 1, "duration": 13.2, "cog_desc": "a person eats.", '
        '"fig_desc": "A person eats an apple.", "fig_desc_score": -5.38}\n'
    )
    prepare("charades_fig", "org/fig", tmp_path / "fig", configs=["release"], data_dir=str(files))
    text = " ".join((tmp_path / "fig" / "README.md").read_text().split())
    assert str(tmp_path) not in text
    assert re.search(r"Not in release: charades\\?_fig\\?_train.jsonl", text), "the builder says what is missing"
    rebuild(folder / "generation", tmp_path / "again", configs=configs, data_dir=str(files))
    assert [row_differences(tmp_path / "again", folder, config) for config in configs] == [([], 0), ([], 0)]
    with pytest.raises(FileExistsError, match="again is not empty"):
        rebuild(folder / "generation", tmp_path / "again")
    with pytest.raises(ValueError, match="nope: not published here; there are release, release-clips"):
        rebuild(folder / "generation", tmp_path / "third", configs=["nope"])


def test_the_command_that_rebuilds_says_in_one_line_what_it_cannot_do(published, tmp_path, monkeypatch, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    command = ["rebuild", "--folder", str(published["tfcovr"]), "--output_dir", str(tmp_path / "full")]
    monkeypatch.setattr(sys, "argv", command)
    assert main() == 1
    assert capsys.readouterr().err == f"{tmp_path / 'full'} is not empty; name another folder, or remove this one\n"


def test_videos_of_a_written_folder_go_along_only_with_a_license(tmp_path):
    features = datasets.Features({"video": datasets.Video(decode=False)})
    rows = datasets.Dataset.from_dict({"video": [{"bytes": b"1", "path": "a.mp4"}] * 3}, features=features)
    tables = {name: {"train": rows.with_format("arrow").iter(2)} for name in ("own-videos", "more-videos")}
    tables["own"] = {"train": [pa.table({"n": [1]})]}
    card = tmp_path / "card.md"
    card.write_text(f"---\nlicense: other\n---\n# Card\n{COUNTS_START}\n{COUNTS_END}\n")
    source = str(write_folder(tables, tmp_path / "source", card=card))
    prepare(source, "org/x", tmp_path / "texts")
    assert [path.name for path in (tmp_path / "texts").iterdir() if path.is_dir()] == ["own"]
    for options, message in (
        ({"configs": ["own-videos"]}, "own-videos holds videos; ask for videos to publish them"),
        ({"videos": True}, "holds videos: leave them out, or name the license"),
    ):
        with pytest.raises(ValueError, match=message):
            prepare(source, "org/x", tmp_path / "out", **options)
    prepare(source, "org/x", tmp_path / "out", configs=["own", "own-videos"], videos=True, license="cc-by-4.0")
    assert [row["video"]["bytes"] for row in rows_of(tmp_path / "out", "own-videos")] == [b"1"] * 3
    assert header_of(tmp_path / "out")["license"] == "cc-by-4.0"


def test_a_folder_from_elsewhere_that_leads_out_of_itself_is_refused(published, tmp_path):
    build, out = tmp_path / "build", tmp_path / "out"
    shutil.copytree(published["tfcovr"], build)
    text = (build / "README.md").read_text()
    for old, new, message in (
        ("- config_name: mini-clips\n  data", "- config_name: ../../x\n  data", "'../../x' is not a folder name"),
        (
            "  - split: test\n    path: mini/",
            "  - split: ../x\n    path: mini/",
            "'../x' of 'mini' is not a split name",
        ),
        ("  - split: test\n    path: mini/", "  - split: dev\n    path: mini/", "holds no Parquet file of mini/dev"),
        ("configs:\n- config_name: mini", "configs:\n- name: mini", "does not name its configurations"),
    ):
        assert old in text
        (build / "README.md").write_text(text.replace(old, new, 1))
        with pytest.raises(ValueError, match=re.escape(message)):
            prepare(str(build), "org/name", out)
    (build / "README.md").write_text(text)
    (build / "generation" / "passwords").symlink_to("/etc/passwd")
    with pytest.raises(ValueError, match="passwords is a link"):
        prepare(str(build), "org/name", out)
    assert not out.exists()


def test_the_libraries_that_the_published_code_needs_are_named_with_versions(published):
    for name, folder in published.items():
        lines = (folder / "generation" / "requirements.txt").read_text().splitlines()
        needed = {line.partition("==")[0] for line in lines}
        assert needed >= {"av", "datasets", "filelock", "numpy", "pillow", "pyarrow", "tqdm", "wrapt"}
        assert ("polars" in needed) == (name != "youcook2_comp")
        assert not needed & {"decord", "subtle-video", "torch", "torchcodec", "transformers"}
        assert all(re.fullmatch(r"[\w-]+==[\d.]+", line) for line in lines)


def test_a_folder_that_a_recipe_wrote_is_published_without_what_names_the_machine(published, tmp_path):
    build = tmp_path / "build"
    shutil.copytree(published["tfcovr"], build)
    (build / "results.json").write_text('{"output_dir": "/home/someone"}')
    publication = prepare(str(build), "other/name", tmp_path / "out", configs=["mini"], license="cc-by-4.0")
    assert (publication.repo_type, publication.repo_id, publication.needs) == ("dataset", "other/name", ())
    written = {path.relative_to(tmp_path / "out").parts[0] for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert written == {"README.md", "generation", "mini"}
    assert rows_of(tmp_path / "out", "mini") == rows_of(published["tfcovr"], "mini")
    header, text = header_of(tmp_path / "out"), (tmp_path / "out" / "README.md").read_text()
    assert (header["license"], header["license_link"]) == (
        "cc-by-4.0", "https://creativecommons.org/licenses/by/4.0/",
    )  # fmt: skip
    assert [config["config_name"] for config in header["configs"]] == ["mini"]
    assert "* rendered competitions: 2 train, 2 validation, 2 test\n" in text
    assert "Rendered athletes, not real video" in text
    assert set(re.findall(r'load_dataset\("(\w+/\w+)"', text)) == {"other/name"}
    code = json.loads((tmp_path / "out" / "generation" / "parameters.json").read_text())
    assert list(code["configurations"]) == ["mini"]
    with pytest.raises(FileExistsError, match="out is not empty"):
        prepare(str(build), "other/name", tmp_path / "out")
    with pytest.raises(ValueError, match="holds no configuration nope; it has mini"):
        prepare(str(build), "other/name", tmp_path / "two", configs=["nope"])
    with pytest.raises(ValueError, match="leave out data_dir"):
        prepare(str(build), "other/name", tmp_path / "two", data_dir="x")
