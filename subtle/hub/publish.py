"""Publish a dataset, a model, an adapter, a metric or a Space on the Hub, each in one commit."""

import errno
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, get_args

from huggingface_hub import HfApi

import metrics
from hf_datasets.registry import BUILDERS
from hf_datasets.video.shared_memory import PixelFolder
from subtle.hub.contents import files_of, hidden_files
from subtle.hub.options import PublishConfig, What
from subtle.hub.publication import Publication, check_repo_id
from subtle.hub.upload import UploadPlan, check_token, look_up, look_up_if_possible, make_plan, upload
from subtle.run.model_folders import MINIATURE_CLIP, MINIATURE_TFCOVR, WEIGHTS

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Target:
    """One thing to publish: of which kind, its name here, its name on the Hub, and the model that it starts from.

    With `videos` a dataset goes up with its videos, which is for those of the miniature.
    """

    what: str
    name: str
    repo_id: str
    base_repo: str | None = None
    videos: bool = False


def everything(org: str) -> list[Target]:
    """All datasets, shipped weights and metrics under their own names, and the demo, which shows TF-CoVR's videos."""
    return [
        *(Target("dataset", name, f"{org}/{name}", videos=name == "tfcovr") for name in BUILDERS),
        *(
            Target("adapter", name, f"{org}/{name}", f"{org}/{Path(MINIATURE_CLIP).name}")
            if (WEIGHTS / name / "adapter_config.json").is_file()
            else Target("model", name, f"{org}/{name}")
            for name in sorted(path.name for path in WEIGHTS.iterdir() if path.is_dir())
        ),
        *(
            Target("classifier", path.parent.name, f"{org}/{path.parent.name}-classifier")
            for path in sorted(WEIGHTS.glob("*/adapter_config.json"))
        ),
        *(Target("metric", name, f"{org}/{name}") for name in metrics.METRICS),
        Target("demo", "demo", f"{org}/subtle-demo", f"{org}/{Path(MINIATURE_TFCOVR).name}"),
    ]


def targets_of(config: PublishConfig) -> list[Target]:
    """What the command line asks for.

    Raises:
        ValueError: It does not say it, or says it twice.
    """
    if config.what is None:
        known = ", ".join(get_args(What))
        raise ValueError(f"say what to publish: {known}; such as `python recipes/publish.py metric map_at_k`")
    if config.what == "all":
        if not config.org or config.name or config.repo:
            raise ValueError("all takes no name and no --repo but --org, the user or organization to publish under")
        targets = everything(config.org)
    elif config.what == "demo":
        if not config.repo or config.name or config.org:
            raise ValueError("demo takes no name but --repo: `python recipes/publish.py demo --repo ORG/subtle-demo`")
        targets = [Target("demo", "demo", config.repo, config.base_repo)]
    elif not config.name or not config.repo or config.org:
        raise ValueError(
            f"name what to publish and where: `python recipes/publish.py {config.what} NAME --repo ORG/NAME`"
        )
    else:
        targets = [Target(config.what, config.name, config.repo, config.base_repo)]
    for target in targets:
        check_repo_id(target.repo_id)
    return targets


def prepare_publication(target: Target, config: PublishConfig, folder: Path) -> Publication:
    """The folder of what is published, complete.

    Raises:
        ValueError: There is no such thing to publish.
    """
    if target.what == "metric":
        return prepare_metric(target.name, target.repo_id, folder)
    if target.what in {"model", "adapter", "classifier"}:
        from subtle.hub import model

        given: dict[str, Any] = {"base_repo": target.base_repo, "part": target.what, "license": config.license}
        return model.prepare_model(target.name, target.repo_id, folder, **given)
    if target.what == "embeddings":
        from subtle.hub import embeddings

        return embeddings.prepare_embeddings(target.name, target.repo_id, folder, license=config.license)
    if target.what == "demo":
        from subtle.hub import demo

        org = target.repo_id.partition("/")[0]
        return demo.prepare_demo(
            target.repo_id,
            folder,
            model_repo=target.base_repo or f"{org}/miniature-tfcovr",
            dataset_repo=config.dataset_repo or f"{org}/tfcovr",
            revision=config.tag if config.what == "all" else None,
        )
    if target.what == "space":
        return prepare_space(Path(target.name), target.repo_id, folder)
    name, _, configs = target.name.partition(":")
    return prepare_dataset(
        name,
        target.repo_id,
        folder,
        configs=configs.split(",") if configs else None,
        data_dir=config.data_dir,
        video_dir=config.video_dir,
        videos=config.videos or target.videos,
        license=config.license,
    )


def prepare_dataset(name: str, repo_id: str, folder: Path, **options: Any) -> Publication:
    """Write the folder of a dataset, complete for the Hub: rows, card, metadata and the code that makes them.

    Args:
        name: A registered name, or a folder that `hf_datasets.publish.write_folder` made, such as a build.
        repo_id: `ORG/NAME`.
        folder: A folder that does not exist yet, or is empty.
        options: Of `write_registered` for a registered name, of `rewrite_folder` for a folder, which has its rows and
            takes no `data_dir` and `video_dir`.

    Raises:
        ValueError: The name is neither, or videos would go up without a license that allows it.
    """
    if name in BUILDERS:
        from hf_datasets.publishing.registered_folder import write_registered

        write_registered(name, folder, repo_id=repo_id, **options)
    elif (Path(name) / "README.md").is_file():
        from hf_datasets.publishing.written import rewrite_folder

        if options.pop("data_dir", None) or options.pop("video_dir", None):
            raise ValueError(f"{name} holds its rows already; leave out data_dir and video_dir")
        rewrite_folder(name, folder, repo_id=repo_id, **options)
    else:
        raise ValueError(
            f"{name} is neither a registered dataset ({', '.join(sorted(BUILDERS))}) nor a folder with a README.md "
            "that a build recipe wrote"
        )
    return Publication("dataset", repo_id, folder)


def prepare_metric(name: str, repo_id: str, folder: Path) -> Publication:
    """Copy a metric's folder as a Space; it needs nothing of this project to run or to be loaded.

    Args:
        name: One of `metrics.METRICS`.
        repo_id: `ORG/NAME`; evaluate looks for a script of that NAME, so it must be the metric's.
        folder: Where to write; it is made.

    Raises:
        ValueError: There is no such metric, or the Space has another name.
    """
    source = Path(metrics.space(name))
    if repo_id.partition("/")[2] != name:
        raise ValueError(
            f"evaluate.load({repo_id!r}) would look for {repo_id.partition('/')[2]}.py; "
            f"publish the metric as {repo_id.partition('/')[0]}/{name}"
        )
    shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__init__.py", "__pycache__"))
    for path in (folder / "README.md", folder / f"{name}.py"):  # the bare name needs `import metrics`
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(f'evaluate.load("{name}")', f'evaluate.load("{repo_id}")'), encoding="utf-8")
    return Publication("space", repo_id, folder)


def prepare_space(source: Path, repo_id: str, folder: Path) -> Publication:
    """Copy a folder as it is, without its hidden files."""
    if hidden := hidden_files(source):
        print(f"{source}: hidden files stay here: {', '.join(hidden)}")
    for name, path in files_of(source).items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    return Publication("space", repo_id, folder)


def prepare_all(targets: list[Target], config: PublishConfig, root: Path) -> list[Publication]:
    """The folders of all targets, each in `root` under its name on the Hub.

    Raises:
        FileExistsError: A folder of `--output_dir` is in the way.
        OSError: The disk is full.
    """
    folders = [root / target.repo_id.partition("/")[2] for target in targets]
    for folder in folders:
        if folder.is_dir() and any(folder.iterdir()):
            raise FileExistsError(f"{folder} is not empty; remove it, or name another --output_dir")
    publications = []
    for target, folder in zip(targets, folders, strict=True):
        try:
            publications.append(prepare_publication(target, config, folder))
        except Exception as error:
            shutil.rmtree(folder, ignore_errors=True)
            if getattr(error, "errno", None) in NO_SPACE or "No space left on device" in str(error):
                raise OSError(
                    f"the disk is full where {target.name} is prepared ({root}), and nothing was published; make "
                    "room, or name a folder on another disk with --output_dir"
                ) from error
            raise
    return in_order(publications)


def in_order(publications: Sequence[Publication]) -> list[Publication]:
    """Each after those that it needs; where nothing depends, as given."""
    by_id = {publication.repo_id: publication for publication in publications}
    graph = {
        publication.repo_id: sorted(set(publication.needs) & set(by_id) - {publication.repo_id}, key=list(by_id).index)
        for publication in publications
    }
    return [by_id[repo_id] for repo_id in TopologicalSorter(graph).static_order()]


def make_plans(publications: list[Publication], config: PublishConfig, api: HfApi) -> Iterator[UploadPlan]:
    """What each publication changes; every refusal comes before anything is sent."""
    for publication in publications:
        remote, note = look_up_if_possible(publication) if config.dry_run else (look_up(api, publication), "")
        plan = make_plan(publication, remote, config)
        print("\n".join(plan.lines()))
        if note:
            print(f"  {note}")
        yield plan


def send(plans: list[UploadPlan], api: HfApi) -> None:
    """Upload one after the other.

    Raises:
        OSError: One failed; the message says which were published before.
    """
    done: list[str] = []
    for plan in plans:
        repo_id = plan.publication.repo_id
        try:
            revision = upload(api, plan)
        except OSError as error:
            before = f"; published before: {', '.join(done)}" if done else ""
            raise OSError(f"{error}{before}") from error
        done.append(repo_id)
        print(f"{repo_id}: {'nothing to change, still' if plan.is_empty else 'published as'} {revision}")


def main(config: PublishConfig) -> None:
    targets = targets_of(config)
    api = HfApi()
    if not config.dry_run:
        check_token(api, targets[0].repo_id)
    temporary = PixelFolder(in_memory=False)  # what a killed run prepared is removed now
    try:
        root = Path(config.output_dir or temporary.path)
        plans = list(make_plans(prepare_all(targets, config, root), config, api))
        if config.dry_run:
            print("dry run: nothing was sent")
        else:
            send(plans, api)
    finally:
        temporary.remove()
