"""Rows as a recipe's configuration names them: of this folder, as it is now."""

from types import SimpleNamespace

import polars as pl
import pytest

from harness.data import open_dataset

CARD = "---\nconfigs:\n- config_name: mini\n  data_files: mini/*.parquet\n---\n"


def write_dataset(folder, texts):
    (folder / "mini").mkdir(parents=True, exist_ok=True)
    pl.DataFrame({"text": texts}).write_parquet(folder / "mini" / "train.parquet")
    (folder / "README.md").write_text(CARD)
    return SimpleNamespace(dataset=str(folder), dataset_config="mini", data_dir=None)


@pytest.mark.parametrize("names", [("one/data", "two/data"), ("data", "data")])
def test_a_folder_gives_its_own_rows_also_where_another_or_an_earlier_one_had_its_name(tmp_path, names):
    for name, texts in zip(names, (["a", "b"], ["c", "d", "e"]), strict=True):
        config = write_dataset(tmp_path / name, texts)
        assert open_dataset(config, "train")["text"][:] == texts
