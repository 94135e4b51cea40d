"""tests/unit mirrors src/delta_tta: the tests of PKG/mod.py are in PKG/test_mod.py."""

import ast
from pathlib import Path

import delta_tta

PACKAGE, UNIT = Path(delta_tta.__file__).parent, Path(__file__).parent
ELSEWHERE = {
    "settings_typing.py": "written by tools/list_settings.py; tools/test_list_settings.py compares it",
    "experiments/ray_engine.py": "needs a Ray cluster; distributed/test_ray.py runs one",
}
"""Modules without a file of their name, and why."""


def modules():
    return sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")


def mirror(module):
    return UNIT / module.parent / f"test_{module.name}"


def test_every_module_has_a_test_file_of_its_name():
    missing = [str(module) for module in modules() if not mirror(module).is_file()]
    assert missing == sorted(ELSEWHERE), "add the file, or say in ELSEWHERE why there is none"


def test_every_such_file_has_tests():
    for path in filter(Path.is_file, map(mirror, modules())):
        names = [getattr(node, "name", "") for node in ast.parse(path.read_text(encoding="utf-8")).body]
        assert any(name.startswith("test_") for name in names), path


def test_folders_of_tests_are_packages():
    """Files of one name may then lie in several folders."""
    folders = {path.parent for path in UNIT.rglob("test_*.py")}
    assert not [str(one) for one in folders if not (one / "__init__.py").is_file()]
