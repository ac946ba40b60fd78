"""The rules of the house, held by reading the source: what may import what, how long files are, and what is never called."""

from __future__ import annotations

import ast
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import steelyard
from steelyard import registry

ROOT = Path(__file__).parents[1]
SOURCE = Path(steelyard.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
NAMES = [str(path.relative_to(SOURCE)) for path in FILES]
FRAMEWORKS = {"torch", "torchao", "torch_xla", "jax", "jaxlib", "tensorflow", "iree", "transformers", "triton"}
LONGEST = 500
BANNED_CALLS = {"eval", "exec", "os.system", "os.popen", "yaml.unsafe_load", "yaml.full_load", "tempfile.mktemp"}
BANNED_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
TRANSLATORS = sorted((SOURCE / "dialects").rglob("*.py"))
ENGINES_OWN = FRAMEWORKS | {
    "subprocess", "select", "selectors", "time", "fcntl", "threading", "signal", "steelyard.clocks", "steelyard.machine.locks",
    "steelyard.engine.launch",
}  # fmt: skip
BANNED_WORDS = ("Manager", "Handler", "Helper", "Utils")
RIDDLES = re.compile(
    r"\b(?:nobody|somebody|anybody|whoever|deserves?|mended|all the same|own sake|original's sake|knows? nothing"
    r"|(?:is|are|was|were) told(?! apart))\b",
    re.IGNORECASE,
)
"""Phrases of help, messages and docstrings that say less than a plain word (CONTRIBUTING.md, Words)."""

every_file = pytest.mark.parametrize("path", FILES, ids=NAMES)


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(nodes: Iterator[ast.AST]) -> Iterator[tuple[str, int]]:
    """Top-level packages that the nodes import, with their lines."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0], node.lineno


def at_import(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Statements that run when the module is imported: not those in functions, nor those for type checkers alone."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from at_import(node.orelse)
            continue
        yield node
        for inner in ("body", "orelse", "finalbody", "handlers"):
            yield from at_import(getattr(node, inner, []))


@every_file
def test_no_file_is_over_the_limit(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


@every_file
def test_every_module_says_why_it_is_there(path: Path) -> None:
    assert (ast.get_docstring(tree(path)) or "").strip()


def dangers(module: ast.Module) -> list[str]:
    """Code that would run what a file says: interpreters, shells, and formats that carry code."""
    safe = {"yaml.SafeLoader"} | {
        node.name for node in ast.walk(module) if isinstance(node, ast.ClassDef) and "yaml.SafeLoader" in map(ast.unparse, node.bases)
    }
    found = [f"{name} in line {line}" for name, line in imports(ast.walk(module)) if name in BANNED_MODULES]
    for node in (node for node in ast.walk(module) if isinstance(node, ast.Call)):
        name, words = ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}
        loader = words.get("Loader") or (ast.unparse(node.args[1]) if len(node.args) > 1 else "")
        banned = name in BANNED_CALLS or (name == "yaml.load" and loader not in safe) or words.get("shell", "False") != "False"
        banned |= words.get("weights_only", "True") != "True" or (name == "torch.load" and "weights_only" not in words)
        found += [f"{name} in line {node.lineno}"] if banned else []
    return found


@every_file
def test_nothing_dangerous_is_called_or_imported(path: Path) -> None:
    assert dangers(tree(path)) == []


@every_file
def test_frameworks_are_imported_at_top_level_only_by_their_backend(path: Path) -> None:
    """Files whose name begins with an underscore are loaded only by what needs the framework anyway."""
    if path.parent.name == "backends" or path.name.startswith("_"):
        return
    assert [found for found in imports(at_import(tree(path).body)) if found[0] in FRAMEWORKS] == []


@every_file
def test_names_are_nouns_and_verbs_and_globals_do_not_change(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ClassDef):
            assert not node.name.endswith(BANNED_WORDS), node.name
        assert not isinstance(node, ast.Global), f"global in line {node.lineno}"  # type: ignore[attr-defined]


WORKERS = [path for path in FILES if path.relative_to(SOURCE).parts[0] in ("measuring", "backends", "variants", "workloads", "drop_in.py")]
WORKERS += [SOURCE / "engine" / name for name in ("arm.py", "weigh.py", "pairs.py", "passes.py", "bench.py")]


def own_clocks(path: Path) -> list[str]:
    """Where a module asks `time` for the time, whose functions a user's file may have replaced by then."""
    names = {"perf_counter", "perf_counter_ns", "process_time", "thread_time", "thread_time_ns", "monotonic", "monotonic_ns"}
    asked = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute) and node.attr in names]
    asked = [node for node in asked if ast.unparse(node.value) == "time"]
    taken = [node for node in ast.walk(tree(path)) if isinstance(node, ast.ImportFrom) and node.module == "time"]
    return [f"{path.name}:{node.lineno}" for node in (*asked, *taken)]


@pytest.mark.parametrize("path", WORKERS, ids=str)
def test_what_times_users_code_takes_its_clocks_before_that_is_loaded(path: Path) -> None:
    assert own_clocks(path) == []


@every_file
def test_no_star_imports_and_annotations_are_postponed(path: Path) -> None:
    module = tree(path)
    assert not [node for node in ast.walk(module) if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)]
    if any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) for node in module.body):
        assert "from __future__ import annotations" in path.read_text(encoding="utf-8")


def modules(path: Path) -> Iterator[str]:
    """Every module that a file imports, by its full name, wherever in it."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


EXAMPLES = [*(ROOT / "examples" / "toy_dialect" / "toy_dialect").glob("*.py"), ROOT / "tests" / "dialects" / "standins" / "inverted.py"]


@pytest.mark.parametrize("path", [*TRANSLATORS, *sorted(EXAMPLES)], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_dialect_translates_and_owns_no_process_clock_or_lock(path: Path) -> None:
    assert not ENGINES_OWN & set(modules(path))


COMMANDS = sorted((SOURCE / "cli").glob("*.py"))


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.name)
def test_commands_know_dialects_by_registration_alone(path: Path) -> None:
    """Names of dialects stand in examples of the help, and nowhere else."""
    names = [info.name for info in pkgutil.iter_modules([str(SOURCE / "dialects")]) if info.ispkg]
    assert names and not [module for module in modules(path) if module.startswith(tuple(f"steelyard.dialects.{name}" for name in names))]
    told = [node.value for node in ast.walk(undocumented(path)) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert not [text for text in told if set(re.findall(r"\w+", text)) & set(names)]


def undocumented(path: Path) -> ast.Module:
    """A module without the docstrings of anything in it."""
    found = tree(path)
    for node in ast.walk(found):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            node.body = node.body[1:]
    return found


def test_a_class_name_has_one_meaning() -> None:
    found: dict[str, list[str]] = {}
    for path in FILES:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


@every_file
def test_words_are_plain(path: Path) -> None:
    text = re.sub(r"[\s\"#]+", " ", path.read_text(encoding="utf-8"))
    assert not (found := [text[max(0, hit.start() - 40) : hit.end() + 20] for hit in RIDDLES.finditer(text)]), found


def test_the_rules_can_be_broken() -> None:
    """A rule that finds nothing anywhere proves nothing."""
    assert [bool(RIDDLES.search(text)) for text in ("Nobody listens.", "The caller is told.", "Two arms are told apart.")] == [1, 1, 0]
    code = "import torch.nn\nif TYPE_CHECKING:\n    import jax\ntry:\n    import triton\nexcept ImportError:\n    pass\n"
    late = ast.parse(code + "def f():\n    import tensorflow\nclass C:\n    import iree")
    assert [name for name, _ in imports(at_import(late.body))] == ["torch", "triton", "iree"]
    bad = ["eval(x)", "import pickle", "from pickle import loads", "run(a, shell=True)", "run(a, shell=flag)", "yaml.load(x)"]
    bad += [
        "yaml.load(x, yaml.Loader)",
        "yaml.load(x, Loader=Loose)",
        "torch.load(x)",
        "torch.load(x, weights_only=False)",
        "def f():\n    exec(x)",
    ]
    assert [code for code in bad if not dangers(ast.parse(code))] == []
    good = ["class L(yaml.SafeLoader): pass\nyaml.load(x, L)", "run(a, shell=False)", "torch.load(x, weights_only=True)", "model.eval()"]
    assert [code for code in good if dangers(ast.parse(code))] == []


def test_imports_go_one_way() -> None:
    program = [sys.executable, "-c", "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize(
    ("module", "banned"),
    [
        ("steelyard", ["numpy", "msgspec", "rich", "click", "yaml", "psutil"]),
        ("steelyard.cli.main", ["numpy", "msgspec", "rich", "yaml", "psutil"]),
        ("steelyard.registry", ["msgspec", "rich", "click", "yaml", "psutil"]),
        ("steelyard.engine.worker", ["msgspec", "rich", "click", "yaml", "psutil"]),
        ("steelyard.engine.nursery", ["msgspec", "rich", "click", "yaml", "psutil"]),
        ("steelyard.engine.conduct", []),
        ("steelyard.library", ["numpy", "msgspec"]),
    ],
)
def test_importing_a_module_loads_no_more_than_it_must(module: str, banned: list[str]) -> None:
    names = [*banned, *sorted(FRAMEWORKS)]
    code = f"import sys, {module}; print([name for name in {names} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_all_built_ins_can_be_listed_without_a_framework() -> None:
    blocked = f"import sys; sys.modules.update(dict.fromkeys({sorted(FRAMEWORKS)}))\n"
    code = blocked + "from steelyard import registry; print(len(registry.catalogue().workloads) > 10)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


def test_the_layout_in_contributing_names_every_package() -> None:
    root = Path(__file__).parents[1]
    layout = (root / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Layout")[2].partition("## Import rules")[0]
    rooms = {path.parent.name for path in (root / "src" / "steelyard").glob("*/__init__.py")}
    assert rooms and [room for room in sorted(rooms) if layout.count(f"\n  {room}/ ") != 1] == []
    told = {found[1]: found[2] for found in re.finditer(r"^  (\w+)/ (.*(?:\n {17}.*)*)", layout, re.MULTILINE)}
    inner = {(path.parent.parent.name, path.parent.name) for path in (root / "src" / "steelyard").glob("*/*/__init__.py")}
    assert inner and [name for room, name in sorted(inner) if f" {name}/" not in told[room]] == []


PROBES = {"noise.py", "peaks.py", "probing.py"}
"""What the doctor and `list recipes` measure of a machine: small cases of their own choice, by name, through the engine."""


@pytest.mark.parametrize("path", sorted((SOURCE / "engine").rglob("*.py")), ids=lambda path: path.name)
def test_the_engine_knows_no_workload_by_name(path: Path) -> None:
    if path.name in PROBES:
        return
    rooms = {name.partition("/")[0] for name in registry.catalogue().workloads if "/" in name} - {"fake"}
    texts = [node.value for node in ast.walk(undocumented(path)) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert rooms and not [text for text in texts if text.partition("/")[0] in rooms and "/" in text]


def test_planning_imports_no_supervision() -> None:
    supervising = {
        f"steelyard.engine.{name}" for name in ("run", "crew", "pool", "launch", "conversation", "lockstep", "worker", "conduct")
    }
    planning = [SOURCE / "engine" / f"{name}.py" for name in ("plan", "pairing", "partition", "names", "selection", "filters", "place")]
    assert not [f"{path.name}: {name}" for path in planning for name in modules(path) if name in supervising]
