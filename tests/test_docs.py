"""Every Python block in the README and the docs runs, in the order of its file, in one namespace.
A plain block right below one is what it prints.

Shell blocks parse, and their commands exist. A page begins with the extras that it needs. Files that a page shows as a
whole are those of the examples, and lie where its blocks run. Links between the documents lead somewhere.
"""

import ast
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from stepmill.errors import MissingPackageError
from stepmill.system.optional import RAY, is_installed
from stepmill.tools.cli.program import program
from support import ray_cluster

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n```\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"^```(?:c|cpp)\n((?://|/\*) (\w+\.\w+): .*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path) -> list[tuple[int, str, str | None]]:
    """Line number and text of each Python block, and what it prints, where the document shows that."""
    text = path.read_text(encoding="utf-8")
    return [(text.count("\n", 0, match.start(1)), match[1], match[2]) for match in BLOCK.finditer(text)]


def files_on(path: Path) -> dict[str, str]:
    """The files that a document shows as a whole: blocks whose first line begins with the name of one."""
    return {match[2]: match[1] for match in FILE.finditer(path.read_text(encoding="utf-8"))}


def test_there_are_documents():
    assert {"README.md", "docs/interface.md"} <= {name(path) for path in DOCUMENTS}
    assert sum(len(blocks(path)) for path in DOCUMENTS) > 15
    assert sum(shown is not None for path in DOCUMENTS for _, _, shown in blocks(path)) >= 2


# Ray's own code warns of itself.
RAYS_WARNINGS = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)
JAX_PAGES = {"jax-worlds.md", "xla.md"}
RUN = [
    pytest.param(path, id=name(path), marks=RAYS_WARNINGS if path.name == "ray.md" else ())
    for path in DOCUMENTS
    if blocks(path)
]


@pytest.mark.parametrize("path", RUN)
def test_examples_run_and_print_what_is_shown(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))  # not the user's own, for docs/datasets.md
    if path.name == "ray.md" and is_installed(RAY):
        ray_cluster.cluster()  # else its first pool would start one that is as large as the machine
    for file, text in files_on(path).items():
        (tmp_path / file).write_text(text)
    namespace = {"__name__": "__example__"}
    for line, source, shown in blocks(path):
        # Blank lines in front, so that a traceback names the line of the document.
        try:
            exec(compile("\n" * line + source, str(path), "exec"), namespace)
        except (MissingPackageError, ModuleNotFoundError) as error:
            # A page about another library. `make integrations` and, for JAX worlds, `make test-jax` have them all.
            if os.environ.get("STEPMILL_JAX" if path.name in JAX_PAGES else "STEPMILL_INTEGRATIONS"):
                raise
            pytest.skip(str(error))
        printed = capsys.readouterr().out
        if shown is not None:
            assert printed == shown, f"{name(path)}, line {line}"


# What each extra brings of the packages that the pages import; numpy, gymnasium and dm_env are always there.
BRINGS = {
    "atari": {"ale_py"},
    "jax": {"jax"},
    "jax-worlds": {"jax"},
    "metaworld": {"metaworld"},
    "minari": {"minari"},
    "minigrid": {"minigrid"},
    "mujoco": {"mujoco"},
    "numba": {"numba"},
    "pettingzoo": {"pettingzoo", "mpe2"},
    "ray": {"ray"},
    "sb3": {"stable_baselines3", "torch"},
    "tianshou": {"tianshou", "torch"},
    "torch": {"torch"},
    "torchrl": {"torchrl", "tensordict", "torch"},
}
ALWAYS = {*sys.stdlib_module_names, "stepmill", "numpy", "gymnasium", "dm_env", "cloudpickle"}


# The README and the landing page lead to the pages, and need nothing that is not there.
PAGES = [path for path in DOCUMENTS if path.parent != ROOT and path.name != "index.md" and blocks(path)]


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_page_begins_with_the_extras_that_it_needs(path):
    first = path.read_text(encoding="utf-8").partition("\n\n")[2].partition("\n\n")[0]
    assert first.startswith("Needs "), f"{name(path)}: {first}"
    extras = set(",".join(re.findall(r"stepmill\[([\w,-]+)\]", first)).split(",")) - {""}
    with (ROOT / "pyproject.toml").open("rb") as file:
        assert extras <= tomllib.load(file)["project"]["optional-dependencies"].keys()
    known = ALWAYS.union(*(BRINGS.get(extra, set()) for extra in extras))
    trees = [ast.parse(source) for _, source, _ in blocks(path)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {module.partition(".")[0] for module in imported} <= known, name(path)


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if SHELL.search(path.read_text("utf-8"))], ids=name)
def test_shell_blocks_parse_and_name_what_exists(path):
    for block in SHELL.findall(path.read_text(encoding="utf-8")):
        parsed = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True)
        assert parsed.returncode == 0, f"{name(path)}: {block}{parsed.stderr}"
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["stepmill"]:
                check_command(words[1:], f"{name(path)}: {line}")


def check_command(words: list[str], line: str) -> None:
    context = click.Context(program, info_name="stepmill")
    if words[0].startswith("-"):
        program.make_parser(context).parse_args(list(words))
        return
    command = program.get_command(context, words[0])
    assert command is not None, line
    try:
        command.make_parser(click.Context(command, parent=context)).parse_args(list(words[1:]))
    except click.UsageError as error:
        pytest.fail(f"{line}: {error.format_message()}")


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    for match in LINK.finditer(text):
        target = match[1] or match[2]
        if re.match(r"\w+:", target):
            continue
        file, _, anchor = target.partition("#")
        goal = (path.parent / file) if file else path
        assert goal.exists(), f"{name(path)}: {target}"
        if anchor:
            assert anchor in anchors(goal), f"{name(path)}: {target}"


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub makes of headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_error_tree_is_the_one_in_the_code():
    from stepmill import errors

    tree = re.search(r"^    (StepmillError\n.*?)\n\n", errors.__doc__, re.DOTALL | re.MULTILINE)[1]
    tree = re.sub(r"^    ", "", tree, flags=re.MULTILINE)
    assert tree in (ROOT / "docs" / "interface.md").read_text(encoding="utf-8")


def test_the_diagrams_show_the_code_as_it_is(monkeypatch):
    """To draw them checks every class, attribute and file that they show. Mended: `python -m docs.images.diagrams`."""
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.delitem(sys.modules, "benchmarks", raising=False)
    images = ROOT / "docs" / "images"
    diagrams = runpy.run_path(str(images / "diagrams.py"))
    for diagram in diagrams["DIAGRAMS"]:
        for theme in diagrams["THEMES"]:
            diagrams["pyplot"].close(diagrams["drawn"](diagram, theme))
            assert (images / f"{diagram}-{theme.name}.png").exists()


def test_files_on_pages_are_the_examples():
    """So that what a page shows is what is built and tested."""
    found = {file: text for path in DOCUMENTS for file, text in files_on(path).items()}
    assert {"coin.h", "coin.c"} <= found.keys()
    for file, text in found.items():
        assert text == (ROOT / "examples" / "own_envs" / file).read_text(encoding="utf-8"), file
