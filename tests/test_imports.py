"""The shape of the package: imports point one way, optional packages wait, the public surface is what it says."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from graphlib import TopologicalSorter
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import stepmill
from stepmill import _native
from stepmill.views.dm import DmPool
from stepmill.views.gym import GymPool
from stepmill.views.gymnasium import GymnasiumPool

ROOT = Path(stepmill.__file__).parent

# Each line may import those above it. "stepmill" is the package itself: what a user sees.
LAYERS = [
    ("_native", "_version", "errors"),
    "system",
    "values",
    "registry",
    "wrappers",
    "envs",
    "spec",
    "settings",
    "sources",
    "hosts",
    "device",
    "views",
    "managers",
    "zoo",
    "make",
    "interop",
    "stepmill",
    "testing",
    ("tools", "__main__"),
]
LEVELS = {part: level for level, line in enumerate(LAYERS) for part in ([line] if isinstance(line, str) else line)}
# What a user asks for by a method or a name of the package, and nobody else: named inside functions, and for types.
NAME_TOOLS = {"stepmill", "stepmill.views.pool", "stepmill.managers.base_manager"}
MOST_ENTRIES = 19


def module_name(path: Path) -> str:
    parts = ["stepmill", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# `stepmill new` writes copies of these: projects of their own, of which nothing is imported.
TEMPLATES = set((ROOT / "tools" / "cli").glob("template*"))
MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py")) if not TEMPLATES & {*path.parents}}


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def imports_of(path: Path) -> set[str]:
    """Every module of stepmill that a file imports, wherever in it."""
    return imports_in(ast.parse(path.read_text()), path)


def imports_in(tree: ast.AST, path: Path) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                is_module = inner in MODULES or inner == "stepmill._native"
                found.add(inner if is_module else node.module)
    return {name for name in found if name.split(".")[0] == "stepmill"}


def imported_at_once(path: Path) -> set[str]:
    """The modules that are imported with a file: not those in its functions, nor for types."""
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if not isinstance(node, ast.If)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = []
    return imports_in(tree, path)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module: str) -> None:
    assert layer_of(module) in LEVELS, "a new part of the package: give it a place in LAYERS"
    targets = imports_of(MODULES[module]) - {module}
    if module in NAME_TOOLS:
        tools = {target for target in targets if layer_of(target) == "tools"}
        assert tools, f"{module} names no tool any more: take it out of NAME_TOOLS"
        assert tools.isdisjoint(imported_at_once(MODULES[module])), f"{module} imports a tool before it is used"
        targets -= tools
    for target in targets:
        is_below = LEVELS[layer_of(target)] < LEVELS[layer_of(module)]
        assert is_below or layer_of(target) == layer_of(module), f"{module} imports {target}, which is above it"


def test_the_house_has_few_rooms() -> None:
    shown = {path.relative_to(ROOT).parts[0] for path in MODULES.values()} - {"__init__.py", "__main__.py"}
    assert len(shown) <= MOST_ENTRIES, "find the part that should carry it"
    assert len(LAYERS) <= MOST_ENTRIES


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {module: imports_of(path) - {module} for module, path in MODULES.items()}
    for module in NAME_TOOLS:
        graph[module] = {target for target in graph[module] if layer_of(target) != "tools"}
    for module in graph:  # a package and the modules in it are one step in reading order
        if "__init__" in MODULES[module].name and module != "stepmill":
            graph[module] = {target for target in graph[module] if not target.startswith(f"{module}.")}
    TopologicalSorter(graph).prepare()  # raises CycleError


# ---- names ----------------------------------------------------------------------------------------

# What a reader has to know. In the other parts, the name of a module may repeat where its folder says what is meant.
NUCLEUS = ("values", "system", "registry", "wrappers", "envs", "sources", "hosts", "device", "views", "managers")
# The names that modules have in common. This list only gets shorter.
REPEATED_MODULES = {
    *(
        "arguments",
        "calls",
        "check",
        "construction",
        "control",
        "ding",
        "entry",
        "env",
        "episodes",
        "frames",
        "options",
    ),
    *("play", "policy", "record", "results", "server", "simulator", "spaces", "spec", "trial", "watch"),
}


def repeated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def test_no_module_of_the_nucleus_has_the_name_of_another() -> None:
    own = [path for path in MODULES.values() if path.name != "__init__.py"]
    nucleus = [path for path in own if path.relative_to(ROOT).parts[0] in NUCLEUS]
    assert repeated(path.stem for path in nucleus) == set()
    found = repeated(path.stem for path in own)
    assert found - REPEATED_MODULES == set(), "find another name"
    assert REPEATED_MODULES - found == set(), "take it out of the list"


def test_no_public_class_has_the_name_of_another() -> None:
    nodes = [node for path in MODULES.values() for node in ast.walk(ast.parse(path.read_text()))]
    names = [node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    assert repeated(names) == set(), "find another name"


# ---- the engine and its hosts ---------------------------------------------------------------------

HOSTS = {
    "stepmill.hosts.native_host",
    "stepmill.hosts.inline_host",
    "stepmill.hosts.process.process_host",
    "stepmill.hosts.ray.ray_host",
}
# Those that choose a host. All others, the engine above all, know only what every host offers.
CHOOSERS = {"stepmill.hosts.open_host", "stepmill.hosts.open_local_host"}
CPP = Path(__file__).parent.parent / "cpp"


def test_only_those_that_choose_a_host_know_which_there_are() -> None:
    users = {module for module, path in MODULES.items() if imports_of(path) & HOSTS}
    assert users == CHOOSERS


def test_a_host_knows_neither_another_nor_what_is_above_it() -> None:
    for host in HOSTS:
        for target in imports_of(MODULES[host]):
            assert target not in HOSTS, f"{host} imports {target}"
            assert LEVELS[layer_of(target)] <= LEVELS["hosts"]


def test_neither_side_of_a_fork_imports_the_other() -> None:
    caller, forked = "stepmill.hosts.process.caller", "stepmill.hosts.process.forked"
    for module, path in MODULES.items():
        for side, other in ((caller, forked), (forked, caller)):
            if module.startswith(side) or (side == caller and not module.startswith(forked)):
                found = {target for target in imports_of(path) if target.startswith(other)}
                assert found == set(), f"{module} runs in the other process"


# The folders of cpp/, and which others each may include. Envs include their author's header and the tables that the
# engine knows them by; bindings may include all of the core.
BELOW_STATIONS = {"core/env", "core/memory", "core/counters"}
NATIVE_PARTS = {
    "core/env": set(),
    "core/gpu": {"core/env"},  # the driver, and envs on a GPU
    "core/memory": {"core/env", "core/gpu"},
    "core/counters": {"core/memory"},
    "core": BELOW_STATIONS,  # the stations of an action
    "core/process": BELOW_STATIONS | {"core"},
    "core/remote": BELOW_STATIONS | {"core"},
    "stepmill": {"core/env"},
    "envs": {"stepmill", "core", "core/env"},
    "bindings/python": set(),
    "bindings/input": {"bindings/python", "bindings"},  # of `bindings`: host.h
    "bindings/output": {"bindings/python", "bindings/input"},
    "bindings/hosts": {"bindings/python", "bindings/input", "bindings/output", "bindings"},
    "bindings/gpu": {"bindings/python", "bindings/input"},
    "bindings/xla": {"bindings/python", "bindings"},  # of `bindings`: engine_xla.h
    "bindings": {f"bindings/{part}" for part in ("python", "input", "output", "hosts", "gpu", "xla")},
}
NATIVE_FILES = {
    path.relative_to(CPP).as_posix(): path
    for part in ("core", "stepmill", "envs", "bindings")
    for path in sorted((CPP / part).rglob("*.[hc]*"))
}


def includes_of(path: Path) -> set[str]:
    return set(re.findall(r'^#include ["<]([^">]+)[">]', path.read_text(), re.MULTILINE))


def part_of(file: str) -> str:
    folder = file.rpartition("/")[0]
    return "envs" if folder.startswith("envs/") else folder


def test_native_parts_include_one_way() -> None:
    assert {part_of(file) for file in NATIVE_FILES} == set(NATIVE_PARTS)
    for file, path in NATIVE_FILES.items():
        part = part_of(file)
        allowed = NATIVE_PARTS[part] | {part}
        if part.startswith("bindings"):
            allowed |= {other for other in NATIVE_PARTS if not other.startswith("bindings")}
        for included in includes_of(path):
            if included in NATIVE_FILES:
                assert part_of(included) in allowed, f"{file} includes {included}"
            elif not part.startswith("bindings"):
                assert not included.startswith(("Python.h", "nanobind/")), f"{file} includes {included}"


def test_the_engine_knows_no_host_and_no_host_knows_the_engine() -> None:
    hosts = {file for file in NATIVE_FILES if re.fullmatch(r"bindings/hosts/\w+_host\.h", file)}
    assert len(hosts) == len(HOSTS)
    for file, path in NATIVE_FILES.items():
        own, found = re.sub(r"\.cpp$", ".h", file), includes_of(path)
        if file != "bindings/module.cpp":
            assert found & hosts <= {own}, f"{file} includes a host"
        if not re.match(r"bindings/(engine|module)", file):
            assert "bindings/engine.h" not in found, f"{file} includes the engine"


# ---- those that stand on the surface --------------------------------------------------------------

# Our own integrations and tools are the first outside users: if they need a private name, the surface is wrong.
OUTSIDERS = ("interop", "tools")
OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
BELOW_THE_SURFACE = {"_native", "hosts", "sources"}


def private_names(path: Path) -> set[str]:
    """The attributes with one leading underscore that a file takes from anything but ``self``, ``cls`` and modules."""
    tree = ast.parse(path.read_text())
    known = {"self", "cls", "super()"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            known |= {alias.asname or alias.name for alias in node.names if f"{node.module}.{alias.name}" in MODULES}
    return {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and re.match("_[^_]", node.attr)
        and node.attr not in OF_NAMED_TUPLES
        and ast.unparse(node.value) not in known
    }


def test_private_names_are_seen(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text("import os\npool._engine.use(os._exit, self._own, super()._own, pair._replace(x=1), one.__class__)")
    assert private_names(file) == {"pool._engine"}


def test_integrations_and_tools_use_no_private_names() -> None:
    outside = {module: path for module, path in MODULES.items() if layer_of(module) in OUTSIDERS}
    found = {module: names for module, path in outside.items() if (names := private_names(path))}
    assert found == {}, "make what they need public"


def test_integrations_import_nothing_from_below_the_surface() -> None:
    found = {}
    for module, path in MODULES.items():
        if layer_of(module) == "interop" and (below := {layer_of(one) for one in imports_of(path)} & BELOW_THE_SURFACE):
            found[module] = below
    assert found == {}, "what they need is a part of the views' surface, or goes"


def test_managers_and_views_stand_side_by_side_on_the_engine() -> None:
    for module, path in MODULES.items():
        for one, other in (("managers", "views"), ("views", "managers")):
            if layer_of(module) == one:
                assert other not in {layer_of(target) for target in imports_of(path)}, f"{module} knows {other}"


# ---- the tests -----------------------------------------------------------------------------------

TESTS = Path(__file__).parent
TEST_FILES = {str(path.relative_to(TESTS)): path for path in sorted(TESTS.rglob("*.py"))}
MOST_LINES = 600
# Folders that are named otherwise than the part of the package whose tests they hold, or hold none.
# RLlib takes pools as they are; the seeds are the documents that the interfaces come from.
OTHER_FOLDERS = {"examples": None, "interop/rllib": None, "seeds": None, "site": None}
OTHER_FOLDERS |= {"device/gpu": "device/cuda"}  # on a real one
OTHER_FOLDERS |= {"support": None, "support/envs": None, "support/soak": None}


def test_no_test_imports_another() -> None:
    tests = "|".join(sorted(path.stem for path in TEST_FILES.values() if path.stem.startswith("test_")))
    imports = re.compile(rf"^ *(?:from|import) +(?:[\w.]+\.)?(?:{tests})\b", re.MULTILINE)
    assert [file for file, path in TEST_FILES.items() if imports.search(path.read_text())] == [], "share it in support"


def test_no_test_file_is_long() -> None:
    lines = {file: path.read_text().count("\n") for file, path in TEST_FILES.items()}
    assert {file: count for file, count in lines.items() if count > MOST_LINES} == {}, "split it, by subject"


def test_folders_of_tests_are_those_of_the_package() -> None:
    for folder in {path.parent.relative_to(TESTS).as_posix() for path in TEST_FILES.values()} - {"."}:
        part = OTHER_FOLDERS.get(folder, folder)
        there = part is None or (ROOT / part).is_dir() or (ROOT / f"{part}.py").is_file()
        assert there, f"tests/{folder}: there is no src/stepmill/{part}"


# ---- what is imported ----------------------------------------------------------------------------

OPTIONAL = ["torch", "dm_env", "matplotlib", "rich", "click", "envpool", "jax", "cv2", "pygame", "hypothesis", "pytest"]
OPTIONAL += ["dm_control", "mujoco", "gymnasium_robotics", "minigrid", "pettingzoo", "mpe2", "highway_env", "Box2D"]
OPTIONAL += ["metaworld", "nle", "tianshou", "stable_baselines3", "torchrl", "tensordict", "ray", "minari", "h5py"]
OPTIONAL += ["numba", "llvmlite"]
# What a pool of native envs does not need: to import all of it would take a tenth of the time of `import stepmill`.
PARTS_THAT_WAIT = {"stepmill.envs", "stepmill.hosts.process.process_host", "stepmill.hosts.ray.ray_host"}
PARTS_THAT_WAIT |= {"stepmill.managers", "stepmill.testing", "stepmill.tools", "stepmill.wrappers"}


def test_import_leaves_optional_packages_alone() -> None:
    code = (
        "import sys, json, stepmill; pool = stepmill.make('CartPole-v1'); pool.reset(); pool.step([0]); "
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    loaded = set(json.loads(done.stdout))
    assert "stepmill" in loaded
    assert loaded.isdisjoint(OPTIONAL), loaded & set(OPTIONAL)
    assert loaded.isdisjoint(PARTS_THAT_WAIT), loaded & PARTS_THAT_WAIT


def test_the_dm_view_brings_dm_env() -> None:
    code = "import sys, stepmill; stepmill.make_dm('CartPole-v1'); print('dm_env' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.strip() == "True"


# ---- the public surface ---------------------------------------------------------------------------


def test_the_public_surface() -> None:
    assert set(stepmill.__all__) == {
        "Difference",
        "EnvError",
        "PoolSpec",
        "Process",
        "Ray",
        "Rollout",
        "SavedState",
        "SavedStates",
        "StepmillError",
        "Verification",
        "Verifications",
        "__version__",
        "compile",
        "errors",
        "get_include",
        "jit",
        "list_all_envs",
        "make",
        "make_dm",
        "make_gym",
        "make_gymnasium",
        "make_spec",
        "per_env",
        "register",
        "resume",
        "verify",
        "zoo",
    }
    assert list(stepmill.__all__) == sorted(stepmill.__all__)
    for name in stepmill.__all__:
        assert hasattr(stepmill, name)


# ---- public modules -----------------------------------------------------------------------------

REPOSITORY = TESTS.parent
INTERFACE = (REPOSITORY / "docs" / "interface.md").read_text(encoding="utf-8")
PUBLIC = re.findall(r"`(stepmill[\w.]*)`(?=.*\|.*\|$)", INTERFACE.partition("\n## Modules\n")[2], re.MULTILINE)
# Everything that a user reads as an example.
SHOWN = sorted(
    [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md"), *(REPOSITORY / "examples").rglob("*.py")]
)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_module_says_what_it_offers(name: str) -> None:
    if name != "stepmill.interop.ding":  # needs DI-engine: tests/interop/ding imports it
        module = imported(name)
        assert module is None or module.__all__


def test_only_public_modules_say_what_they_offer() -> None:
    found = {name for name, path in MODULES.items() if re.search(r"^__all__\b", path.read_text(), re.MULTILINE)}
    assert found == set(PUBLIC), "__all__ is for the modules that docs/interface.md lists"


def test_dir_shows_the_public_modules_and_no_other() -> None:
    shown = {name for name in dir(stepmill) if inspect.ismodule(getattr(stepmill, name))}
    assert shown == {name.split(".")[1] for name in PUBLIC if "." in name}


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.name)
def test_examples_import_public_modules_only(path: Path) -> None:
    imports = re.findall(r"^ *(?:from|import) (stepmill[\w.]*)", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(imports) <= set(PUBLIC), "use what is public, or list the module in docs/interface.md"


def test_the_layout_in_contributing_names_every_part() -> None:
    layout = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    parts = {MODULES[name].relative_to(ROOT).parts[0] for name in MODULES}
    names = {part if part.endswith(".py") else f"{part}/" for part in parts}
    assert {name for name in names if not re.search(rf"\b{re.escape(name)}", layout)} <= {"__init__.py"}


def imported(name: str) -> ModuleType | None:
    """The module; None if it is for a library that is not installed."""
    try:
        return importlib.import_module(name)
    except stepmill.errors.MissingPackageError:
        assert name.startswith(("stepmill.interop.", "stepmill.sources.jit.with_numba"))
        return None
    except ModuleNotFoundError:  # these are imported when a JAX world was asked for, and JAX is there
        assert name.startswith(("stepmill.device.", "stepmill.zoo.worlds."))
        return None


def package_modules() -> list[ModuleType]:
    # Those of packages that may not be there are left out.
    apart = ("stepmill.tools.cli", "stepmill.interop.ding")
    modules = [imported(name) for name in MODULES if not name.startswith(apart)]
    return [module for module in modules if module is not None]


@pytest.mark.parametrize("module", package_modules(), ids=lambda module: module.__name__)
def test_what_a_module_offers_exists_and_is_described(module: ModuleType) -> None:
    assert module.__doc__
    for name in getattr(module, "__all__", []):
        thing = getattr(module, name)
        if inspect.isfunction(thing) or inspect.isclass(thing):
            assert thing.__doc__, f"{module.__name__}.{name} has no docstring"


@pytest.mark.parametrize("view", [GymnasiumPool, GymPool, DmPool, stepmill.PoolSpec])
def test_every_public_method_has_a_docstring(view: type) -> None:
    for cls in view.__mro__:
        if not cls.__module__.startswith("stepmill"):
            continue
        for name, member in vars(cls).items():
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                assert member.__doc__, f"{cls.__name__}.{name} has no docstring"


def test_errors_have_one_root_and_their_tree_is_complete() -> None:
    tree = stepmill.errors.__doc__ or ""
    for name in stepmill.errors.__all__:
        assert issubclass(getattr(stepmill.errors, name), stepmill.StepmillError)
        assert name in tree, f"{name} is not in the tree at the top of errors.py"
    public = {
        name for name, thing in vars(stepmill.errors).items() if inspect.isclass(thing) and name.endswith("Error")
    }
    assert public == set(stepmill.errors.__all__)


def test_the_version_is_that_of_the_package() -> None:
    try:
        installed = metadata.version("stepmill")
    except metadata.PackageNotFoundError:
        pytest.skip("stepmill runs from a folder, not from an installation")
    assert stepmill.__version__ == installed


# ---- the native module ----------------------------------------------------------------------------


def stub() -> ast.Module:
    return ast.parse((ROOT / "_native.pyi").read_text())


def names_in(body: list[ast.stmt]) -> set[str]:
    """What a stub, or a class of it, declares."""
    names = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def public_names(thing: Any) -> set[str]:
    return {name for name in vars(thing) if not name.startswith("_")}


def test_the_stub_names_exactly_what_the_native_module_has() -> None:
    assert names_in(stub().body) == public_names(_native)


def test_the_stub_names_exactly_what_the_native_classes_have() -> None:
    for node in stub().body:
        if isinstance(node, ast.ClassDef):
            declared = {name for name in names_in(node.body) if not name.startswith("_")}
            assert declared == public_names(getattr(_native, node.name)), node.name


def test_the_package_is_typed() -> None:
    assert (ROOT / "py.typed").is_file()
