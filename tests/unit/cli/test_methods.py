"""`delta-tta methods`: all components."""

import json

from command import run


def test_methods_are_listed():
    shown = run("methods").stdout
    assert all(word in shown for word in ("tent", "+delta", "eata", "lame", "cotta", "memo", "tta", "+sample-drop"))
    assert "ent-w" in json.loads(run("methods", "--json").stdout)
