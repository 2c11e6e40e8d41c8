"""XML, ReLoCLNet and HERO trained by several processes: negatives come from all of them."""

from pathlib import Path

import pytest
import torch
from small_moment_models import LABELS, every_model, inputs, small

SCRIPT = Path(__file__).parents[2] / "fixtures" / "two_process_moments.py"


@pytest.fixture(scope="module")
def results(tmp_path_factory, warm_python):
    folder = tmp_path_factory.mktemp("processes")
    for done in warm_python.run_ranks(2, [SCRIPT, folder], timeout=120):
        assert done.returncode == 0, done.stderr
    return {path.stem: torch.load(path, weights_only=True) for path in folder.glob("*.pt")}


@pytest.mark.parametrize("step", [0, 1], ids=["first step", "hard negatives"])
@every_model
def test_two_processes_with_uneven_batches_have_the_loss_and_gradients_of_one(results, name, step):
    alone = results["alone"][name][step]
    assert alone["scores"] == (5, 3)
    for rank, shape in (("rank0", (2, 2)), ("rank1", (3, 2))):
        found = results[rank][name][step]
        assert found["scores"] == shape
        torch.testing.assert_close(found["loss"], alone["loss"])
        torch.testing.assert_close(found["parts"], alone["parts"])
        assert len(found["gradients"]) == len(alone["gradients"])
        for one, other in zip(found["gradients"], alone["gradients"], strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_a_hero_that_never_reads_tokens_keeps_their_embedding_out_of_training(tmp_path):
    for subtitles in (False, True):  # without subtitles the start token stands for them
        model = small("hero", subtitles=subtitles)
        model.save_pretrained(tmp_path)
        for one in (model, type(model).from_pretrained(tmp_path)):
            assert one.get_input_embeddings().weight.requires_grad is not subtitles


def test_rows_with_one_video_index_are_not_negatives_of_each_other():
    model, batch = small("xml", margin=5.0), inputs()
    same = model(**batch, **LABELS, video_indices=torch.tensor([4, 4, 4])).loss_parts
    assert same["video_ranking"] == same["query_ranking"] == 0
    assert model(**batch, **LABELS).loss_parts["video_ranking"] > 0
    with pytest.raises(ValueError, match=r"video_indices has shape \(2,\); it must be \(3,\)"):
        model(**batch, **LABELS, video_indices=torch.tensor([4, 4]))
