"""What a newcomer reads first: citation, workflow and documents name what exists."""

import re
import tomllib
from pathlib import Path

import yaml

from tests.fixtures.verbs import WORDS

ROOT = Path(__file__).parents[1]
GOALS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
COMMUNITY = [ROOT / ".pre-commit-config.yaml", *sorted((ROOT / ".github").rglob("*.yml"))]
FOLDERS = (".github", "docs", "hf_datasets", "hf_models", "metrics", "recipes")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))])
REPLACED = ("data set", "anew", "offline writer", "is no folder", "has no eyes", "mend it", "mend the")


def parsed(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_citation_agrees_with_the_package():
    citation = parsed("CITATION.cff")
    assert (str(citation["version"]), citation["license"]) == (project()["version"], project()["license"])
    papers = [reference["title"].split(":")[0] for reference in citation["references"]]
    assert papers == ["From Play to Replay", "VideoComp", "VERIFIED"]


def test_every_make_goal_that_a_document_names_exists():
    missing = []
    for path in (*COMMUNITY, *DOCUMENTS):
        named = re.findall(r"(?:`|^|run: |entry: )make ([a-z][\w-]*)", path.read_text(encoding="utf-8"), re.MULTILINE)
        missing += [f"{path.name}: make {goal}" for goal in named if goal not in GOALS]
    assert not missing


def test_the_workflow_calls_the_makefile_on_every_python_that_is_supported():
    workflow = parsed(".github/workflows/tests.yml")
    jobs = workflow["jobs"]
    versions = [re.search(r"3\.\d+$", line).group() for line in project()["classifiers"] if ":: 3." in line]
    assert jobs["test"]["strategy"]["matrix"]["python-version"] == versions
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert commands == {"lint": ["make lint"], "test": ["make test"], "docs": ["make docs"]}
    assert workflow["permissions"] == {"contents": "read"}


def test_every_script_configuration_and_file_that_a_document_names_exists():
    recipes, missing = ROOT / "recipes", []
    shipped = {path.name for path in recipes.rglob("*.yaml")}
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        scripts = re.findall(r"\b((?:hf_datasets|hf_models|metrics|recipes|examples|tests)/[\w/]+\.py)\b", text)
        verbs = re.findall(r"(?:^ *|`)subtle (?!path )([a-z]\w+)|\$\(subtle path ([a-z]\w+)\)", text, re.MULTILINE)
        scripts += [f"recipes/{one or other}.py" for one, other in verbs]
        missing += [f"{path.name}: {script}" for script in scripts if not (ROOT / script).is_file()]
        missing += [f"{path.name}: {name}" for name in re.findall(r"[\w-]+\.yaml\b", text) if name not in shipped]
    assert not missing


def test_the_guide_lists_every_recipe():
    verbs = {" ".join([script.removesuffix(".py"), *word]) for script, *word in WORDS.values()}
    table = (ROOT / "docs/guide.md").read_text(encoding="utf-8").partition("| verb |")[2].partition("\n\n")[0]
    listed = {name for row in table.splitlines() for name in re.findall(r"`([\w ]+)`", row[: row.find("|", 1)])}
    assert listed == verbs


def test_the_first_page_fits_on_a_screen_and_its_picture_loads_fast():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80
    alternative, picture = re.search(r"!\[([^]]+)\]\(([^)]+)\)", text).groups()
    assert len(alternative) > 20
    assert (ROOT / picture).stat().st_size < 1_000_000


def anchors(path):
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_documents_lead_to_files_and_headings():
    broken = []
    for path in DOCUMENTS:
        if path == ROOT / "docs/index.md":
            continue  # links to built pages
        for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
            file, _, anchor = link.partition("#")
            target = path.parent / file if file else path
            if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
                broken.append(f"{path.relative_to(ROOT)}: {link}")
    assert not broken


def test_documents_use_the_words_of_the_field():
    found = []
    for path in DOCUMENTS:
        text = " ".join(path.read_text(encoding="utf-8").split()).lower()
        found += [f"{path.relative_to(ROOT)}: {word}" for word in REPLACED if re.search(rf"\b{word}\b", text)]
    assert not found


def test_the_start_page_of_the_reference_links_to_pages_of_modules():
    links = re.findall(r"\]\((\w[\w/]*)\.html\)", (ROOT / "docs/index.md").read_text(encoding="utf-8"))
    assert len(links) > 10
    for link in links:
        assert (ROOT / f"{link}.py").is_file() or (ROOT / link / "__init__.py").is_file(), link
