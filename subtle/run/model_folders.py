"""The model folders that ship, how the others are made, and the check that a folder is one."""

from pathlib import Path

from subtle.commands import RECIPES

WEIGHTS = RECIPES / "weights"
MINIATURE_CLIP = str(WEIGHTS / "miniature-clip")
MINIATURE_VIDCLIP = str(WEIGHTS / "miniature-vidclip")
MINIATURE_AIM = str(WEIGHTS / "miniature-aim")
MINIATURE_TFCOVR = str(WEIGHTS / "miniature-tfcovr")
ENCODER_FILES = ("modules.json", "adapter_config.json")
"""Of sentence-transformers and of PEFT: either makes a folder one that `load_encoder` takes without a config.json."""
HOW_TO_MAKE = {
    "outputs/stage1/model": "`python recipes/stage1.py` makes it from the miniature in a few minutes, "
    "`make quickstart` makes everything",
    "outputs/stage2/model": "`python recipes/stage2.py` makes it, `make quickstart` makes everything",
    "outputs/vcmr/model": "`python recipes/vcmr.py` makes it",
    "outputs/hero/hero-tv-ht100": "fetch hero-tv-ht100.pt as github.com/linjieli222/HERO says, then `python -m "
    "hf_models.moments.convert_tvr --arch hero hero-tv-ht100.pt outputs/hero/hero-tv-ht100` makes it",
    "outputs/vidclip/comploss/model": "`python recipes/vidclip.py` makes it from the miniature",
    MINIATURE_CLIP: "it ships with the recipes, and `python -m benchmarks.pretrain_miniature` makes it again",
    MINIATURE_VIDCLIP: "it ships with the recipes, and `python recipes/vidclip.py "
    "recipes/configs/vidclip_miniature_base.yaml` makes it again",
    MINIATURE_TFCOVR: "it ships with the recipes, and `make quickstart` makes it again",
}


def check_model_folder(name_or_path: str, *other_files: str) -> None:
    """Exit with a hint on how to make it where a folder (not a name on the Hub) is not a model.

    Args:
        name_or_path: The folder or the name.
        other_files: Any of these makes a folder a model, too, such as modules.json of sentence-transformers.

    Raises:
        ValueError: Its configuration is damaged, or asks for another model than its weights are.
    """
    if any((Path(name_or_path) / file).is_file() for file in other_files):
        return
    if any((Path(name_or_path) / name).is_file() for name in ("config.json", "adapter_config.json")):
        from hf_models.checkpoints import opening

        with opening(name_or_path):
            return
    if name_or_path.count("/") <= 1 and not Path(name_or_path).exists():  # a name on the Hub
        return
    how = HOW_TO_MAKE.get(name_or_path, "give the folder that `save_pretrained` wrote")
    raise SystemExit(f"{name_or_path} is not a model folder (there is no config.json in it); {how}")
