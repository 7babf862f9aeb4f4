"""Makes a site of the docs, which are written for GitHub: MkDocs calls these functions (mkdocs.yml names this file).

The reference is generated: a page per public module, of the names in its ``__all__``. Files outside of docs/ that pages
link to become pages. Pictures in two colours follow the theme of the site instead of the system's.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
OWN_ENVS = sorted(path for path in (ROOT / "examples" / "own_envs").iterdir() if path.is_file())
BESIDE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
POOLS = {"gymnasium": "GymnasiumPool", "gym": "GymPool", "dm": "DmPool"}  # by env_type, in stepmill.views

PICTURE = re.compile(r'<picture><source [^>]*srcset="([^"]+)">(<img [^>]+>)</picture>')
IMAGE = re.compile(r'<img alt="([^"]*)" src="([^"]+)"(?: width="(\d+)")?>')
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Puts the pages of the reference behind those that mkdocs.yml names."""
    reference = next(part["Reference"] for part in config.nav if "Reference" in part)
    modules = ["reference/pools.md", *(reference_page(module) for module in public_modules())]
    reference.append({"Modules": [{Path(page).stem.removeprefix("stepmill."): page} for page in modules]})
    return config


def on_files(files: Files, config: Any) -> Files:
    pages = {"reference/pools.md": pools_text()}
    pages |= {reference_page(module): module_text(module) for module in public_modules()}
    pages |= {f"examples/{path.stem}.md": example_text(path) for path in EXAMPLES}
    pages |= {f"examples/own_envs/{path.name}.md": own_env_text(path) for path in OWN_ENVS}
    pages |= {page: (ROOT / name).read_text(encoding="utf-8") for name, page in BESIDE.items() if name != "README.md"}
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    if page.parent is None:  # it has no neighbours that a column of links could show
        page.meta["hide"] = ["navigation", "toc"] if page.is_homepage else ["navigation"]
    from_root = page.file.src_uri in BESIDE.values() and page.file.src_uri != "index.md"
    text = LINK.sub(lambda match: f"]({moved(match[1], from_root)}{match[2] or ''})", text)
    text = PICTURE.sub(lambda match: image(match[2], "#only-light") + image(match[2], "#only-dark", match[1]), text)
    return IMAGE.sub(lambda match: image(match[0]), text)


def moved(target: str, from_root: bool) -> str:
    """Where the site has what a page links to."""
    path = target.removeprefix("docs/") if from_root else target
    beside = path.removeprefix("../")
    if beside in BESIDE:
        return BESIDE[beside]
    if beside.startswith("examples/own_envs/"):
        return f"{beside}.md"
    if beside.startswith("examples/") and beside.endswith(".py"):
        return f"{beside.removesuffix('.py')}.md"
    return path


def image(tag: str, only: str = "", source: str | None = None) -> str:
    """The tag in Markdown, so that MkDocs checks where it leads."""
    match = IMAGE.fullmatch(tag)
    if match is None:
        raise ValueError(f'expected <img alt="..." src="..." width="...">, got {tag}')
    width = f"{{ width={match[3]} }}" if match[3] else ""
    return f"![{match[1]}]({source or match[2]}{only}){width}"


def public_modules() -> list[str]:
    """The modules that docs/interface.md lists under "Modules", but for those of the classes on the page of pools."""
    text = (ROOT / "docs" / "interface.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`stepmill.*?) \|", text.partition("\n## Modules\n")[2], re.MULTILINE)
    modules = [module for row in rows for module in re.findall(r"`([\w.]+)`", row)]
    return [module for module in modules if module.removeprefix("stepmill.views.") not in {*POOLS, "pool"}]


def reference_page(module: str) -> str:
    return f"reference/{module}.md"


def pools_text() -> str:
    """The classes that ``make`` returns, and what they share."""
    about = "What `stepmill.make` returns, by `env_type`. [The interface](../interface.md) explains it."
    lines = ["# Pools", "", about, ""]
    for view, name in POOLS.items():
        lines += [f"## {name}", "", f'The pool of `env_type="{view}"`.', ""]
        lines += generated(f"stepmill.views.{view}.{name}", 3)
    lines += ["## What all of them have", "", *generated("stepmill.views.pool.PoolView", 3)]
    return "\n".join(lines)


def module_text(module: str) -> str:
    """Functions first, then classes, then constants."""
    names = [name for name in exported(module) if not name.startswith("_")]
    lines = [f"# {module}", "", *generated(module, 2, members=False)]
    for name in sorted(names, key=lambda name: (name[0].isupper(), name.isupper())):
        path = f"{module}.{name}"
        if source_of(path).exists():  # also a file: what it has of that name, if anything, is meant
            if name not in defined(path):
                continue
            path = f"{path}.{name}"
        lines += generated(path, 2, show_root_heading=True, show_root_toc_entry=True)
    return "\n".join(lines)


def example_text(path: Path) -> str:
    text = path.read_text(encoding="utf-8").rstrip()
    about = f"[What it shows, and its curve](../examples.md#{path.name.replace('.', '')})."
    return f"# {path.name}\n\n{about}\n\n```python\n{text}\n```\n"


def own_env_text(path: Path) -> str:
    text = path.read_text(encoding="utf-8").rstrip()
    about = "[How to write such a file](../../own-envs.md)."
    return f"# {path.name}\n\n{about}\n\n```{path.suffix[1:].replace('rs', 'rust')}\n{text}\n```\n"


def generated(name: str, level: int, **options: Any) -> list[str]:
    """What mkdocstrings replaces by the documentation of a module or a class."""
    settings = {"heading_level": level, **options}
    return [f"::: {name}", "    options:", *(f"      {key}: {value!r}" for key, value in settings.items()), ""]


def exported(module: str) -> list[str]:
    """``__all__``, read from the source: nothing is imported."""
    lists: dict[str, list[str]] = {}
    for node in ast.parse(source_of(module).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            others = [alias.asname or alias.name for alias in node.names if alias.name == "__all__"]
            lists |= {name: exported(node.module) for name in others}
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            assert isinstance(node.value, ast.List)
            return [name for element in node.value.elts for name in _names(element, lists)]
    raise ValueError(f"{module} has no __all__")


def defined(module: str) -> set[str]:
    """The functions and classes of a module, read from the source."""
    body = ast.parse(source_of(module).read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def source_of(module: str) -> Path:
    path = ROOT / "src" / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _names(element: ast.expr, lists: dict[str, list[str]]) -> list[str]:
    if isinstance(element, ast.Starred):
        return lists[ast.unparse(element.value)]
    return [ast.literal_eval(element)]
