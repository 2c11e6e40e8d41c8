"""A folder goes to a Hub on this machine in one commit, or not at all, and a mistake is one line."""

import base64
import errno
import hashlib
import importlib.metadata
import json
import os
import random
import re
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub.constants
import huggingface_hub.utils._http
import pytest

import subtle.hub
from subtle.hub import publish, upload
from subtle.hub.options import PublishConfig
from subtle.hub.publication import Publication
from subtle.hub.publish import Target, everything, in_order, main
from subtle.running import run_recipe
from tests.fixtures.hub_server import TOKEN, serve

CARD = "---\ntitle: Page\nsdk: static\n---\n# Page\n"


@pytest.fixture
def hub(monkeypatch):
    """A Hub that this process talks to, with a token that may write to it."""
    with serve() as (address, hub):
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
        template = huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE.replace("https://huggingface.co", address)
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(huggingface_hub.utils._http.time, "sleep", lambda _: None)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        huggingface_hub.utils.disable_progress_bars()
        yield hub
        huggingface_hub.utils.enable_progress_bars()


@pytest.fixture
def folder(tmp_path):
    """A page with a large file, which the Hub takes as LFS."""
    folder = tmp_path / "page"
    write(folder, {"README.md": CARD, "index.html": "<p>one</p>", "data/rows.parquet": "PAR1\0one"})
    return folder


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def call(folder, capsys):
    """Publish the folder; exit status, output, errors."""

    def publish_folder(**options):
        options = {"what": "space", "name": str(folder), "repo": "org/page"} | options
        status = run_recipe(main, PublishConfig(**options))
        return (status, *capsys.readouterr())

    return publish_folder


def page(hub):
    return hub.repository("org/page", "space")


def writes(hub):
    return [request for request in hub.requests if not request.startswith(("GET", "HEAD"))]


def test_a_folder_is_published_in_one_commit_and_again_in_none(hub, call):
    status, shown, errors = call(private=True, tag="v1")
    assert (status, errors) == (0, "")
    assert "org/page (space): 3 files, 57 bytes" in shown
    repository = page(hub)
    assert [commit.title for commit in repository.commits] == [
        "initial commit",
        f"Publish 3 files with subtle-video {importlib.metadata.version('subtle-video')}",
    ]
    assert repository.private
    assert repository.tags == {"v1": repository.head.sha}
    assert f"org/page: published as {repository.head.sha}\n" in shown
    files = repository.files
    assert files["README.md"].decode() == CARD
    assert files["index.html"] == b"<p>one</p>"
    assert files["data/rows.parquet"] == b"PAR1\0one"
    assert files.keys() == {".gitattributes", "README.md", "data/rows.parquet", "index.html"}
    hub.requests.clear()
    status, shown, _ = call()
    assert (status, len(repository.commits), writes(hub)) == (0, 2, [])
    assert f"org/page: nothing to change, still {repository.head.sha}" in shown


def test_files_that_vanished_are_removed_in_the_same_commit_and_those_of_others_stay(hub, call, folder):
    call()
    page(hub).commit({".eval_results/other.yaml": b"[]", "LICENSE": b"MIT"})
    (folder / "data/rows.parquet").unlink()
    write(folder, {"index.html": "<p>two</p>", "more/new.txt": "new"})
    status, shown, _ = call()
    assert status == 0
    assert len(page(hub).commits) == 4
    assert page(hub).files.keys() == {
        *(".gitattributes", ".eval_results/other.yaml", "LICENSE"),
        *("README.md", "index.html", "more/new.txt"),
    }
    assert [line.split() for line in shown.splitlines()[1:5]] == [
        ["=", "39", "bytes", "README.md"],
        ["~", "10", "bytes", "index.html"],
        ["+", "3", "bytes", "more/new.txt"],
        ["-", "8", "bytes", "data/rows.parquet"],
    ]
    assert "files that others put there stay: .eval_results/other.yaml, LICENSE" in shown


def test_a_file_of_ours_that_someone_changed_stays_when_it_vanishes_here(hub, call, folder):
    call()
    page(hub).commit({"data/rows.parquet": b"theirs"})
    (folder / "data/rows.parquet").unlink()
    assert "files that others put there stay: data/rows.parquet" in call()[1]
    assert page(hub).files["data/rows.parquet"] == b"theirs"


def test_a_card_that_was_edited_on_the_hub_stays_until_it_may_be_replaced(hub, call, folder):
    call()
    page(hub).commit({"README.md": b"---\nsdk: static\n---\nedited"}, "Edit")
    write(folder, {"README.md": f"{CARD}new", "index.html": "<p>two</p>"})
    for _ in range(2):
        status, shown, _ = call()
        assert status == 0
        assert "README.md was edited on the Hub and stays" in shown
        assert page(hub).files["README.md"].endswith(b"edited")
        assert page(hub).files["index.html"] == b"<p>two</p>"
    assert len(page(hub).commits) == 4, "the second run had nothing to change"
    assert call(replace_card=True)[0] == 0
    assert page(hub).files["README.md"].decode() == f"{CARD}new"
    write(folder, {"README.md": CARD})
    assert "stays" not in call()[1], "the card is ours again"


def test_a_dry_run_sends_nothing_and_says_what_would_change(hub, call, folder):
    call()
    hub.requests.clear()
    write(folder, {"index.html": "<p>two</p>"})
    status, shown, _ = call(dry_run=True)
    assert (status, writes(hub), len(page(hub).commits)) == (0, [], 2)
    assert "~  10 bytes  index.html" in shown
    assert f"compared with its commit {page(hub).head.sha[:8]}" in shown
    assert shown.endswith("dry run: nothing was sent\n")


def test_a_dry_run_needs_neither_token_nor_connection(hub, call, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    assert "no such repository yet" in call(dry_run=True)[1]
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    status, shown, _ = call(dry_run=True)
    assert (status, "+  10 bytes  index.html" in shown) == (0, True)
    assert "compared with nothing: no connection to http://127.0.0.1:9" in shown
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "compared with nothing: org/page cannot be reached in offline mode" in call(dry_run=True)[1]
    assert writes(hub) == []


@pytest.mark.parametrize("step", ["POST /api/spaces/.*/commit/", "PUT /objects/", "POST .*/objects/batch", "/create"])
def test_a_server_error_in_the_middle_publishes_nothing_and_the_next_run_completes(hub, call, step):
    hub.fail(step, times=20)
    status, _, errors = call()
    assert (status, errors.count("\n")) == (2, 1)
    assert errors.startswith("error: the Hub failed (500, told to fail), and nothing of org/page was published; run ")
    if ("space", "org/page") in hub.repositories:
        assert page(hub).files.keys() == {".gitattributes", "README.md"}
    hub.events.clear()
    assert call()[0] == 0
    assert page(hub).files["data/rows.parquet"] == b"PAR1\0one"
    assert len(page(hub).commits) == 2
    assert len(hub.puts) == 1, "an object that arrived is not sent again"


def test_a_repository_that_changed_meanwhile_is_left_alone_and_the_next_run_completes(hub, call, folder):
    call()
    write(folder, {"index.html": "<p>two</p>"})
    hub.do("POST .*/preupload/", lambda: page(hub).commit({"other.txt": b"other"}, "Other") and None)
    status, _, errors = call()
    assert (status, errors.count("\n")) == (2, 1)
    assert "org/page was changed by someone else meanwhile, so nothing was published; run again" in errors
    assert page(hub).files["index.html"] == b"<p>one</p>"
    assert call()[0] == 0
    assert page(hub).files["index.html"] == b"<p>two</p>"
    assert page(hub).files["other.txt"] == b"other"


def test_who_may_not_write_is_told_why_before_anything_is_made(hub, call, monkeypatch):
    def refused(**options):
        status, _, errors = call(**options)
        assert (status, errors.count("\n"), hub.repositories) == (2, 1, {})
        return errors

    assert "may not write to other/page (You don't have the rights" in refused(repo="other/page")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    wrong = refused()
    assert "does not accept the token; log in with `hf auth login`, or set HF_TOKEN" in wrong
    assert "hf_wrong" not in wrong
    monkeypatch.setattr(upload, "get_token", lambda: None)
    assert "there is no token to write to org/page with" in refused()
    monkeypatch.undo()


def test_without_a_connection_one_line_says_so(hub, call, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    assert call()[2].startswith("error: no connection to http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert call()[2].startswith("error: org/page cannot be reached in offline mode; unset HF_HUB_OFFLINE")


def test_a_hub_that_redirects_everything_to_nowhere_is_one_line(hub, call):
    hub.fail(".", 302, times=10_000)
    status, _, errors = call()
    assert status == 2
    assert errors.count("\n") == 1
    assert "org/page" in errors


def test_names_of_files_on_the_hub_do_not_write_to_the_terminal(hub, call):
    call()
    page(hub).commit({"a\x1b[31m.txt": b"red"}, page(hub).head.title)
    status, out, errors = call(dry_run=True)
    assert status == 0
    assert "-   3 bytes  a" in out
    assert "a\\x1b[31m.txt" in out
    assert "\x1b" not in out + errors


def test_a_full_disk_while_preparing_publishes_nothing(hub, call, tmp_path, monkeypatch):
    def fail(source, place):
        Path(place).write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(publish.shutil, "copyfile", fail)
        status, _, errors = call(output_dir=str(tmp_path / "kept"))
    assert (status, errors.count("\n")) == (2, 1)
    assert "the disk is full where" in errors
    assert hub.repositories == {}
    assert list((tmp_path / "kept").iterdir()) == []
    assert call(output_dir=str(tmp_path / "kept"))[0] == 0
    assert (tmp_path / "kept/page/index.html").is_file()
    assert "is not empty; remove it, or name another --output_dir" in call(output_dir=str(tmp_path / "kept"))[2]


def test_what_a_killed_run_prepared_is_removed_by_the_next(hub, call, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = set(tmp_path.iterdir())
    with monkeypatch.context() as killed:
        killed.setattr(publish, "send", lambda *_: os._exit(9))
        if (child := os.fork()) == 0:
            call()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert set(tmp_path.iterdir()) > before
    assert call()[0] == 0
    assert set(tmp_path.iterdir()) == before


def test_text_that_names_this_machine_is_refused_with_file_and_path(hub, call, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = {
        f'{{"output_dir": "{tmp_path}/out"}}': f"{tmp_path}/out",
        f'{{"home": "{Path.home()}"}}': str(Path.home()),
        "see /home/someone/runs/1.": "/home/someone/runs/1.",
        f"hf_{'a1' * 17}": "holds a token of the Hub",
    }
    for line, message in lines.items():
        write(folder, {"data/results.json": f"first\n{line}\n"})
        status, _, errors = call()
        assert (status, errors.count("\n"), hub.repositories) == (2, 1, {})
        assert "data/results.json, line 2, " in errors
        assert message in errors
    harmless = ["https://host/home/page", "outputs/stage1", "../root/x", f"x{Path.home()}", "/etc/hosts"]
    write(folder, {"data/results.json": "\n".join(harmless)})
    (folder / "data/binary.bin").write_bytes(b"\0" + str(Path.home()).encode())
    assert call()[0] == 0


SECRETS = {
    "AWS Access Key": f"AKIA{'A1' * 8}",
    "GitHub Token": f"token: ghp_{'aB3' * 12}",
    "GitHub fine-grained": f"github_pat_{'aB3' * 10}",
    "JSON Web Token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "Slack Token": "xoxb-" + "1234567890-" * 2 + "aBcDeFgHiJkLmNoP",
    "Private Key": "-----BEGIN OPENSSH PRIVATE KEY-----",
    "Basic Auth Credentials": "https://me:pass0word9@example.org/rows",
    "token of the Hub, shorter": f"hf_{'aB' * 10}",
    "key of Google": f"AIza{'aB3_-' * 7}",
    "key of a language model": f"sk-ant-api03-{'aB3' * 10}",
    "Secret Keyword": "export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567",
}


@pytest.mark.parametrize(
    ("secret", "encoding"),
    [(secret, "utf-8") for secret in SECRETS.values()]
    + [(SECRETS["AWS Access Key"], "utf-16"), (SECRETS["Secret Keyword"], "utf-16-le")],
)
def test_text_with_a_secret_is_refused_by_file_line_and_kind_and_the_secret_is_not_shown(
    call, folder, secret, encoding
):
    (folder / "notes.txt").write_bytes(f"first\n{secret}\n".encode(encoding))
    status, shown, errors = call(dry_run=True)
    assert (status, errors.count("\n")) == (2, 1)
    assert "notes.txt, line 2, " in errors
    assert secret[-12:] not in shown + errors


@pytest.mark.parametrize("name", ["vocab.json", "tokenizer.json", "merges.txt"])
def test_a_vocabulary_may_hold_what_looks_like_a_path_but_no_token(call, folder, name):
    words = ["/home/someone", "password", "x" * 40, f"hf{'a1' * 17}"]
    write(folder, {name: json.dumps(dict.fromkeys(words, 1))})
    assert call(dry_run=True)[::2] == (0, "")
    for token in (f"hf_{'a1' * 17}", f"ghp_{'aB3' * 12}", f"AKIA{'A1' * 8}"):
        write(folder, {name: json.dumps(dict.fromkeys([*words, token], 1))})
        status, shown, errors = call(dry_run=True)
        assert (status, errors.count("\n")) == (2, 1)
        assert f"{name}, line 1, holds a" in errors
        assert token not in shown + errors


@pytest.mark.parametrize(
    "path", [r"C:\Users\me\videos", r"C:\\Users\\me", "D:/Users/me", "/mnt/disk/videos", "/root/x"]
)
def test_text_with_a_path_of_any_machine_is_refused(call, folder, path):
    write(folder, {"notes.json": f'{{"from": "{path}"}}'})
    status, _, errors = call(dry_run=True)
    assert status == 2
    assert f"notes.json, line 1, names {path}, a path of the machine" in errors


def test_hidden_files_and_files_of_keys_never_go(hub, call, folder):
    hidden = [".env", ".netrc", ".ssh/id_rsa", ".huggingface/token", "data/.secret"]
    write(folder, dict.fromkeys([*hidden, ".eval_results/page.yaml"], "x"))
    status, shown, _ = call()
    assert status == 0
    assert f"hidden files stay here: {', '.join(sorted(hidden))}" in shown
    assert page(hub).files.keys() == {
        *("README.md", "data/rows.parquet", "index.html"),
        *(".gitattributes", ".eval_results/page.yaml"),  # which the Hub reads
    }
    for name in ("id_rsa", "data/server.pem", "_netrc"):
        write(folder, {name: "x"})
        assert f"{name} is a file of keys" in call()[2]
        (folder / name).unlink()


def test_what_looks_like_a_secret_and_is_none_is_published(call, folder):
    dice = random.Random(0)
    image = base64.b64encode(dice.randbytes(200_000)).decode()
    digests = {f"layers.{n}.weight": hashlib.sha256(bytes([n])).hexdigest() for n in range(200)}
    write(
        folder,
        {
            "model.safetensors.index.json": json.dumps({"weight_map": digests}, indent=2),
            "page.html": f'<img src="data:image/png;base64,{image}">',
            "card.md": f'commit {hashlib.sha1(b"x").hexdigest()}, `api_key=os.environ["OPENAI_API_KEY"]`, secret: no',
            "code.py": 'key = request_key(request, chat)\npassword = getpass.getpass("password: ")\ntoken_key: "str"\n',
            "prompts.txt": "Q:\\nWhat is it?\\nA:\\nUsers of /data see https://host/mnt/disk and </root>",
        },
    )
    (folder / "weights.bin").write_bytes(dice.randbytes(1_000_000))
    assert call(dry_run=True)[::2] == (0, "")


def test_links_that_lead_out_of_the_folder_are_refused(hub, call, folder, tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    link = folder / "data/link.txt"
    for target in (tmp_path / "secret.txt", tmp_path, tmp_path / "missing"):
        link.symlink_to(target)
        status, _, errors = call()
        assert (status, hub.repositories) == (2, {})
        assert f"link.txt is a link to {target}; put a copy in its place" in errors
        link.unlink()
    (folder / ".git").mkdir()
    (folder / ".git/config").write_text("url")
    (folder / "inner.txt").symlink_to(folder / "index.html")
    assert call()[0] == 0
    assert page(hub).files["inner.txt"] == b"<p>one</p>"
    assert not any(name.startswith(".git/") for name in page(hub).files)


def test_a_repository_that_someone_else_filled_is_refused_until_it_is_taken_over(hub, call):
    hub.create("org/page", "space").commit({"README.md": b"mine", "weights.bin": b"1"}, "Mine")
    status, _, errors = call()
    assert (status, errors.count("\n"), len(page(hub).commits)) == (2, 1, 2)
    assert "holds files that this command did not publish (README.md, weights.bin, ...)" in errors
    assert call(take_over=True)[0] == 0
    assert page(hub).files.keys() == {*(".gitattributes", "README.md", "index.html", "data/rows.parquet")}


def test_a_public_repository_is_not_published_into_as_private_and_a_tag_not_moved(hub, call, folder):
    call(tag="v1")
    sha = page(hub).head.sha
    assert "org/page is public; make it private in its settings first" in call(private=True)[2]
    assert call(tag="v1")[0] == 0
    write(folder, {"index.html": "<p>two</p>"})
    assert "org/page has a tag v1 for another commit; name another --tag" in call(tag="v1")[2]
    assert (page(hub).head.sha, page(hub).tags) == (sha, {"v1": sha})


def test_a_tag_that_failed_is_made_by_the_next_run(hub, call):
    hub.fail("POST /api/spaces/.*/tag/")
    status, _, errors = call(tag="v1")
    assert (status, errors.count("\n"), len(page(hub).commits)) == (2, 1, 2)
    assert f"org/page is published as {page(hub).head.sha}, but without the tag v1 (" in errors
    assert call(tag="v1")[0] == 0
    assert page(hub).tags == {"v1": page(hub).head.sha}


def test_a_header_that_the_hub_refuses_is_named(hub, call, folder):
    write(folder, {"README.md": "---\nsdk: [\n---\n"})
    assert "README.md has no readable YAML header" in call()[2]
    write(folder, {"README.md": "---\ntitle: Page\n---\n"})
    assert "has sdk: None in its YAML header; a Space runs on gradio, docker, static" in call()[2]
    write(folder, {"README.md": "---\nsdk: gradio\n---\n"})
    assert "the Space starts with app.py, which is not in its folder" in call()[2]
    write(folder, {"README.md": CARD})
    hub.fail("POST /api/validate-yaml", 400)
    assert "org/page is not accepted: Invalid metadata in README.md" in call()[2]
    assert call()[0] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"what": None}, "say what to publish: dataset, model, adapter, classifier, embeddings, metric, space,"),
        ({"repo": None}, "name what to publish and where: `python recipes/publish.py space NAME --repo ORG/NAME`"),
        ({"repo": "page"}, "'page' names no organization or user; write it as ORG/NAME"),
        ({"repo": "org/../page"}, "'org/../page' is not a name on the Hub"),
        ({"what": "all"}, "all takes no name and no --repo but --org"),
        ({"what": "demo"}, "demo takes no name but --repo: `python recipes/publish.py demo --repo ORG/subtle-demo`"),
        ({"name": "missing"}, "missing is not a folder"),
        ({"what": "metric", "name": "map_at_k"}, "publish the metric as org/map_at_k"),
        ({"what": "metric", "name": "map"}, "there is no metric 'map'; there are map_at_k"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(hub, call, options, message):
    status, _, errors = call(**options)
    assert (status, errors.count("\n"), hub.repositories) == (2, 1, {})
    assert message in errors


def test_what_others_need_comes_first():
    def publication(name, *needs):
        return Publication("model", name, Path(), needs)

    publications = [publication("o/a", "o/c", "else/x"), publication("o/b"), publication("o/c", "o/b")]
    assert [each.repo_id for each in in_order(publications)] == ["o/b", "o/c", "o/a"]


def test_everything_is_six_datasets_the_shipped_weights_four_metrics_and_the_demo():
    targets = everything("org")
    kinds = [target.what for target in targets]
    assert [kinds.count(kind) for kind in ("dataset", "model", "adapter", "metric", "demo", "classifier")] == [
        6,
        3,
        1,
        4,
        1,
        1,
    ]
    (classifier,) = (target for target in targets if target.what == "classifier")
    assert classifier == Target("classifier", "miniature-aim", "org/miniature-aim-classifier")
    (adapter,) = (target for target in targets if target.what == "adapter")
    assert adapter == Target("adapter", "miniature-aim", "org/miniature-aim", "org/miniature-clip")


def test_all_goes_in_order_and_a_second_run_completes_what_a_failure_left(hub, call, monkeypatch):
    def stand_in(kind, needs):
        def prepare(name, repo_id, folder, **_):
            write(folder, {"README.md": f"---\ntitle: {name}\n---\n"})
            return Publication(kind, repo_id, folder, needs)

        return prepare

    monkeypatch.setattr(publish, "prepare_dataset", stand_in("dataset", ("org/miniature-clip", "org/map_at_k")))
    models = SimpleNamespace(prepare_model=stand_in("model", ()))
    monkeypatch.setattr(subtle.hub, "model", models, raising=False)
    everything = {"what": "all", "name": None, "repo": None, "org": "org"}
    status, shown, _ = call(**everything, dry_run=True)
    assert (status, hub.repositories) == (0, {})
    hub.fail("POST /api/.*/commit/", nth=3, times=1)
    status, shown, errors = call(**everything)
    first = re.findall(r"^(org/[\w-]+): published", shown, re.MULTILINE)
    assert (status, len(first), errors.count("\n")) == (2, 2, 1)
    assert errors.endswith(f"; published before: {', '.join(first)}\n")
    status, shown, _ = call(**everything)
    order = re.findall(r"^(org/[\w-]+): (?:published|nothing)", shown, re.MULTILINE)
    assert (status, len(order), len(set(order))) == (0, 16, 16)
    assert order[:2] == first
    assert max(map(order.index, ("org/miniature-clip", "org/map_at_k"))) < order.index("org/tfcovr")
    assert {len(repository.commits) for repository in hub.repositories.values()} == {2}
