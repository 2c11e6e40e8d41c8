"""Publish a dataset, a model, an adapter, a metric or a Space on the Hub, each in one commit."""

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from huggingface_hub import HfApi

from hf_datasets.video.shared_memory import PixelFolder
from subtle.hub.contents import files_of, hidden_files
from subtle.hub.everything import Target, everything, in_order, next_release
from subtle.hub.options import PublishConfig, What
from subtle.hub.publication import Publication, check_repo_id
from subtle.hub.upload import Plan, check_token, look_up, look_up_if_possible, make_plan, upload

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


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


def prepare(target: Target, config: PublishConfig, folder: Path) -> Publication:
    """The folder of what is published, complete.

    Raises:
        ValueError: There is no such thing to publish.
    """
    if target.what == "metric":
        from subtle.hub import metric

        return metric.prepare(target.name, target.repo_id, folder)
    if target.what in {"model", "adapter", "classifier"}:
        from subtle.hub import model

        given: dict[str, Any] = {"base_repo": target.base_repo, "part": target.what, "license": config.license}
        return model.prepare(target.name, target.repo_id, folder, **given)
    if target.what == "embeddings":
        from subtle.hub import embeddings

        return embeddings.prepare(target.name, target.repo_id, folder, license=config.license)
    if target.what == "demo":
        from subtle.hub import demo

        org = target.repo_id.partition("/")[0]
        return demo.prepare(
            target.repo_id,
            folder,
            model_repo=target.base_repo or f"{org}/miniature-tfcovr",
            dataset_repo=config.dataset_repo or f"{org}/tfcovr",
            revision=config.tag if config.what == "all" else None,
        )
    if target.what == "space":
        return copied(Path(target.name), Publication("space", target.repo_id, folder))
    from subtle.hub import dataset

    name, _, configs = target.name.partition(":")
    return dataset.prepare(
        name,
        target.repo_id,
        folder,
        configs=configs.split(",") if configs else None,
        data_dir=config.data_dir,
        video_dir=config.video_dir,
        videos=config.videos or target.videos,
        license=config.license,
    )


def copied(source: Path, publication: Publication) -> Publication:
    """A folder as it is, without its hidden files."""
    if hidden := hidden_files(source):
        print(f"{source}: hidden files stay here: {', '.join(hidden)}")
    for name, path in files_of(source).items():
        place = publication.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    return publication


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
            publications.append(prepare(target, config, folder))
        except Exception as error:
            shutil.rmtree(folder, ignore_errors=True)
            if getattr(error, "errno", None) in NO_SPACE or "No space left on device" in str(error):
                raise OSError(
                    f"the disk is full where {target.name} is prepared ({root}), and nothing was published; make "
                    "room, or name a folder on another disk with --output_dir"
                ) from error
            raise
    return in_order(publications)


def make_plans(publications: list[Publication], config: PublishConfig, api: HfApi) -> Iterator[Plan]:
    """What each publication changes; every refusal comes before anything is sent."""
    for publication in publications:
        remote, note = look_up_if_possible(publication) if config.dry_run else (look_up(api, publication), "")
        plan = make_plan(publication, remote, config)
        print("\n".join(plan.lines()))
        if note:
            print(f"  {note}")
        yield plan


def send(plans: list[Plan], api: HfApi) -> None:
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
    if config.what == "all":
        print("the next release of the wheel must carry:")
        print("\n".join(f"  {line}" for line in next_release(targets)))
