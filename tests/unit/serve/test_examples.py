"""The container and the manifest start the command with options that it has."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from delta_tta.cli.commands import app

FOLDER = Path(__file__).parents[3] / "examples" / "serve"


def accepted(arguments):
    """Parse a command line of `delta-tta serve`, up to an option behind it that there is not."""
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    assert runner.invoke(app, ["serve", *arguments, "--help"]).exit_code == 0
    found = runner.invoke(app, ["serve", *arguments, "--no-such-option"])
    assert found.exit_code == 2
    assert "No such option: --no-such-option" in found.output  # it took all the others


def of_the_container(word):
    return json.loads(re.search(rf"^{word} (\[.*\])$", (FOLDER / "Dockerfile").read_text(), re.M)[1])


def test_the_container_starts_the_service():
    assert of_the_container("ENTRYPOINT") == ["delta-tta", "serve"]
    accepted(of_the_container("CMD"))


def test_the_extras_of_the_container_exist():
    extras = re.search(r"\.\[([\w,]+)\]", (FOLDER / "Dockerfile").read_text())[1].split(",")
    project = (FOLDER.parents[1] / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", project, re.M) for extra in extras)


def test_the_manifest_is_an_inference_service_of_one_pod():
    yaml = pytest.importorskip("yaml")
    claim, service = yaml.safe_load_all((FOLDER / "inference-service.yaml").read_text())
    predictor = service["spec"]["predictor"]
    (container,) = predictor["containers"]
    accepted(container["args"])
    assert container["args"] == of_the_container("CMD")
    assert predictor["minReplicas"] == predictor["maxReplicas"] == 1
    assert container["ports"][0]["containerPort"] == 8080
    assert container["env"][0]["name"] == "DELTA_TTA_TOKEN"
    assert predictor["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
