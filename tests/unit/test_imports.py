"""Which modules import which."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import delta_tta

PACKAGE = Path(delta_tta.__file__).parent
FILES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


def at_import(body):
    """The import statements that run when a module is imported."""
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If):
            yield from () if "TYPE_CHECKING" in ast.unparse(node.test) else at_import(node.body)
            yield from at_import(node.orelse)
        elif isinstance(node, ast.Try):
            for part in (node.body, *(handler.body for handler in node.handlers), node.orelse):
                yield from at_import(part)


def imported(module):
    """The modules of the package that a module imports."""
    path = FILES[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in at_import(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            start = [*package[: len(package) + 1 - node.level], *filter(None, [node.module])]
            base = ".".join(start) if node.level else node.module
            names = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in FILES else base for alias in node.names]
        yield from (name for name in names if name in FILES)


def test_no_module_imports_itself_through_others():
    graph = {module: set(imported(module)) for module in FILES}
    assert graph["delta_tta.adapt"] > {"delta_tta.methods", "delta_tta.settings"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"These modules import each other: {' → '.join(reversed(error.args[1]))}")


@pytest.mark.parametrize(
    ("module", "folder"),
    [
        ("settings", "guard"),
        ("typed", "guard"),
        ("engine.state", "postprocess.sticky"),
        ("adapter", "postprocess.sticky"),
    ],
)
def test_the_core_does_not_import_what_it_serves(module, folder):
    name = f"delta_tta.{folder}"
    assert not [found for found in imported(f"delta_tta.{module}") if found == name or found.startswith(f"{name}.")]
