"""AIM's video processor: which frames, which pixels, and every form a video comes in."""

import sys

import av
import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoVideoProcessor, CLIPImageProcessor, SiglipImageProcessor

from hf_models import AIMVideoProcessor
from hf_models.tfcovr.video_processing_aim import decode_frames, middle_frame_indices

# Frames of a video of so many, as the release of TF-CoVR chooses them.
GOLDEN = {
    (12, 100): [3, 11, 20, 28, 36, 45, 53, 61, 70, 78, 86, 95],
    (12, 30): [0, 3, 5, 8, 10, 13, 15, 18, 20, 23, 25, 28],
    (12, 5): [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1],
    (12, 1): [0] * 12,
    (8, 25): [1, 4, 7, 10, 13, 16, 19, 22],
}
SMALL = {"size": {"height": 16, "width": 16}}


def numbered(count, height=16, width=16):
    """Frames whose gray value is four times their number."""
    return torch.arange(count, dtype=torch.uint8).mul(4).view(-1, 1, 1, 1).expand(-1, 3, height, width).contiguous()


def numbers(pixel_values):
    """The numbers of the frames, read back from normalized pixels (frames, channels, height, width)."""
    processor = AIMVideoProcessor()
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (processor.image_mean, processor.image_std))
    return ((pixel_values * std + mean) * 255 / 4).mean((1, 2, 3)).round().int().tolist()


@pytest.fixture
def video(tmp_path):
    """A lossless file of 30 numbered frames."""
    path = tmp_path / "clip.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=25, width=16, height=16, pix_fmt="bgr0")
        for frame in numbered(30).permute(0, 2, 3, 1).numpy():
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return path


@pytest.mark.parametrize("case", GOLDEN, ids=str)
def test_the_frames_are_those_of_the_release(case):
    num_frames, total_num_frames = case
    assert middle_frame_indices(total_num_frames, num_frames).tolist() == GOLDEN[case]


def test_the_rule_in_whole_numbers_is_the_rule_in_floats():
    for num_frames in (1, 4, 8, 12, 16):
        for total in range(num_frames, 400):
            cuts = np.floor(np.linspace(0, total, num_frames + 1)).astype(int)
            middles = np.floor((cuts[:-1] + cuts[1:] - 1) / 2).astype(int)
            assert middle_frame_indices(total, num_frames).tolist() == middles.tolist()


@pytest.mark.parametrize(("total", "wanted"), [(0, 8), (5, 0)])
def test_no_frames_is_an_error(total, wanted):
    with pytest.raises(ValueError, match="at least 1"):
        middle_frame_indices(total, wanted)


@pytest.mark.parametrize("chosen", [[0, 1, 2, 0, 1], None], ids=["repeated", "all"])
def test_a_file_gives_the_frames_that_are_chosen_or_all(video, chosen):
    frames, metadata = decode_frames(str(video), chosen and (lambda metadata: chosen))
    expected = chosen or list(range(30))
    assert (frames[:, 0, 0, 0] // 4).tolist() == metadata.frames_indices == expected
    assert (metadata.total_num_frames, metadata.fps) == (30, 25.0)


def test_every_form_of_a_video_gives_the_same(video):
    processor = AIMVideoProcessor(num_frames=8, **SMALL)
    frames = numbered(30)
    expected = processor(video, return_tensors="pt").pixel_values
    last = frames.permute(0, 2, 3, 1).numpy()
    forms = {
        "path as text": str(video),
        "list of paths": [video],
        "tensor": frames,
        "array, channels last": last,
        "list of arrays": [last],
        "list of images": [Image.fromarray(frame) for frame in last],
        "batch": frames[None],
    }
    for name, form in forms.items():
        assert torch.equal(processor(form, return_tensors="pt").pixel_values, expected), name


def test_files_and_frames_share_a_batch_and_frames_in_memory_are_all_there_are(video):
    processor = AIMVideoProcessor(num_frames=4, **SMALL)
    whole = {"fps": 25, "total_num_frames": 30}
    frames = numbered(30)
    segment = frames[10:18].permute(0, 2, 3, 1)
    batch = processor(
        [segment, str(video), frames[[3, 10, 18, 25]], frames], video_metadata=[dict(whole) for _ in range(4)]
    ).pixel_values
    chosen = [3, 10, 18, 25]
    assert [numbers(torch.as_tensor(clip)) for clip in batch] == [[10, 12, 14, 16], chosen, chosen, chosen]


def test_videos_of_several_lengths_and_sizes_become_one_batch():
    processor = AIMVideoProcessor(num_frames=4, **SMALL)
    videos = [numbered(30), numbered(9, 20, 40), numbered(2)]
    pixel_values = processor(videos, return_tensors="pt").pixel_values
    assert pixel_values.shape == (3, 4, 3, 16, 16)
    assert [numbers(clip) for clip in pixel_values] == [[3, 10, 18, 25], [0, 2, 4, 7], [0, 1, 0, 1]]


def test_the_default_stretches_and_do_center_crop_cuts_out_the_center():
    wide = torch.zeros(1, 3, 20, 60, dtype=torch.uint8)
    wide[..., 20:40] = 255  # the center third is white
    default = {"do_normalize": False, "return_tensors": "pt", "num_frames": 1}
    stretched = AIMVideoProcessor()(wide, **default).pixel_values
    assert stretched.shape[-2:] == (224, 224)
    assert 0.3 < stretched.mean() < 0.37
    cut = AIMVideoProcessor(size={"shortest_edge": 256}, do_center_crop=True)(wide, **default).pixel_values
    assert cut.shape[-2:] == (224, 224)
    assert cut.mean() > 0.99


def test_pixels_are_normalized_as_clip_does():
    white = AIMVideoProcessor()(torch.full((12, 3, 30, 30), 255, dtype=torch.uint8), return_tensors="pt").pixel_values
    expected = (1 - torch.tensor([0.48145466, 0.4578275, 0.40821073])) / torch.tensor(
        [0.26862954, 0.26130258, 0.27577711]
    )
    torch.testing.assert_close(white[0, 0, :, 0, 0], expected)


def test_frames_can_be_sampled_by_frames_per_second(video):
    processor = AIMVideoProcessor(num_frames=None, fps=5, **SMALL)
    assert processor(video, return_tensors="pt").pixel_values.shape[1] == 6
    with pytest.raises(ValueError, match="frame rate"):
        processor(numbered(30))
    with pytest.raises(ValueError, match="not both"):
        AIMVideoProcessor()(video, num_frames=8, fps=5)
    assert AIMVideoProcessor(num_frames=8, **SMALL)(video, fps=5, return_tensors="pt").pixel_values.shape[1] == 6


def test_a_saved_processor_loads_with_the_same_settings(video, tmp_path):
    processor = AIMVideoProcessor(num_frames=6, size={"shortest_edge": 20}, do_center_crop=True, crop_size=16)
    processor.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "aim"}')
    expected = processor(video, return_tensors="pt").pixel_values
    for loaded in (AIMVideoProcessor.from_pretrained(tmp_path), AutoVideoProcessor.from_pretrained(tmp_path)):
        assert type(loaded) is AIMVideoProcessor
        assert loaded.to_dict() == processor.to_dict()
        assert torch.equal(loaded(video, return_tensors="pt").pixel_values, expected)


@pytest.mark.parametrize(
    ("image_processor", "height", "width"),
    [
        (CLIPImageProcessor(size={"shortest_edge": 40}, crop_size={"height": 32, "width": 32}), 32, 32),
        (CLIPImageProcessor(size={"shortest_edge": 40}, do_center_crop=False), 40, 40),
        (SiglipImageProcessor(size={"height": 32, "width": 48}), 32, 48),
    ],
)
def test_frames_are_prepared_as_an_image_processor_prepares_images(image_processor, height, width):
    made = AIMVideoProcessor.from_image_processor(image_processor, num_frames=5)
    default = AIMVideoProcessor.from_image_processor(image_processor)
    fields = {"image_mean": image_processor.image_mean, "image_std": image_processor.image_std}
    fields["size"] = {"height": height, "width": width}
    assert made.to_json_string() == AIMVideoProcessor(**fields, num_frames=5).to_json_string()
    assert default.to_json_string() == AIMVideoProcessor(**fields).to_json_string()


def test_a_video_that_is_missing_or_does_not_decode_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.mp4"):
        AIMVideoProcessor()(tmp_path / "gone.mp4")
    (tmp_path / "text.mp4").write_text("no video")
    with pytest.raises(ValueError, match=r"text\.mp4' does not decode"):
        AIMVideoProcessor()(tmp_path / "text.mp4")


def test_floats_that_were_rescaled_already_are_refused():
    with pytest.raises(ValueError, match="do_rescale=False"):
        AIMVideoProcessor()(torch.rand(12, 3, 16, 16))
    assert AIMVideoProcessor()(torch.rand(12, 3, 16, 16), do_rescale=False)["pixel_values"]


def test_an_unknown_keyword_of_a_call_is_named():
    with pytest.raises(TypeError, match="num_frame'"):
        AIMVideoProcessor()(numbered(30), num_frame=8)


def test_a_file_without_pyav_says_what_to_install(video, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ImportError, match=r"clip\.mkv.*pip install av"):
        AIMVideoProcessor()(video)
