"""Experiments as values: which cells they are, and what is refused before anything runs."""

import dataclasses
import itertools

import pytest

from delta_tta.corruptions.constants import TYPES, VALIDATION
from delta_tta.errors import DeltaError, InputError, MethodError, SettingError, StreamError
from delta_tta.experiments import SCENARIOS, Experiment, Place, from_mapping, from_toml
from delta_tta.experiments.experiment import CLEAN, FAMILIES, GROUPS
from delta_tta.streams import StreamSpec
from laboratory import NETWORK

IS_CB, DS_CB = SCENARIOS[:2]


def test_cells_are_the_product_and_those_on_the_same_images_come_together():
    experiment = Experiment(
        ("source", "tent"),
        scenarios=(IS_CB, DS_CB),
        corruptions=("fog", "contrast"),
        severities=(1, 5),
        batch_sizes=(8, 16),
        seeds=(1, 2),
    )
    cells = experiment.cells()
    assert len(cells) == len(set(cells)) == 2**6
    images = [(cell.corruptions, cell.severity) for cell in cells]
    assert [key for key, _ in itertools.groupby(images)] == [
        (("fog",), 1),
        (("fog",), 5),
        (("contrast",), 1),
        (("contrast",), 5),
    ]
    assert [cell.method for cell in cells[:4]] == ["source", "tent", "source", "tent"]
    assert {(c.stream.scenario, c.stream.rho, c.stream.seed) for c in cells} == {
        ("IS+CB", None, 1), ("IS+CB", None, 2), ("DS+CB", 0.1, 1), ("DS+CB", 0.1, 2),
    }  # fmt: skip
    assert {cell.order for cell in cells} == {"each"}


def test_the_defaults_are_the_papers_scenarios_on_the_embedded_images():
    cells = Experiment(("tent",)).cells()
    assert [cell.stream for cell in cells] == list(SCENARIOS)
    assert {cell.place for cell in cells} == {Place()}


def test_what_is_named_twice_is_run_once_however_it_is_spelled():
    experiment = Experiment(
        ("tent+tbr+dot", "tent+delta", " TENT + DOT+tbr"), scenarios=(IS_CB, IS_CB), corruptions=("families", "fog")
    )
    cells = experiment.cells()
    assert [cell.corruptions[0] for cell in cells] == list(FAMILIES)
    assert {cell.method for cell in cells} == {"tent+delta"}


@pytest.mark.parametrize(("group", "names"), [("all", TYPES), ("validation", VALIDATION), ("families", FAMILIES)])
def test_a_group_stands_for_its_corruptions_in_their_order(group, names):
    cells = Experiment(("source",), scenarios=(IS_CB,), corruptions=(CLEAN, group)).cells()
    assert [cell.corruptions for cell in cells] == [(CLEAN,), *((name,) for name in names)]
    assert GROUPS[group] == names


def test_one_of_each_family_is_one_of_each_family():
    places = [TYPES.index(name) for name in FAMILIES]  # noise 0-2, blur 3-6, weather 7-10, digital 11-14
    assert [sum(place > last for last in (2, 6, 10)) for place in places] == [0, 1, 2, 3]


def test_without_a_reset_all_corruptions_are_one_cell():
    experiment = Experiment(("tent",), scenarios=(IS_CB,), corruptions=("families",), seeds=(1, 2), reset="never")
    cells = experiment.cells()
    assert [(cell.corruptions, cell.order, cell.stream.seed) for cell in cells] == [
        (FAMILIES, "continual", 1), (FAMILIES, "continual", 2),
    ]  # fmt: skip
    (alone,) = dataclasses.replace(experiment, corruptions=("fog",), seeds=(1,)).cells()
    assert alone.order == "each"  # nothing follows that could be reset


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"methods": ()}, SettingError, "at least one of the methods"),
        ({"scenarios": ()}, SettingError, "at least one of the scenarios"),
        ({"corruptions": ()}, SettingError, "at least one of the corruptions"),
        ({"corruptions": ("fogg",)}, SettingError, "Unknown corruption 'fogg'. Did you mean 'fog'?"),
        ({"severities": (0,)}, SettingError, "`severity` to be an integer from 1 to 5, but got 0"),
        ({"severities": (6,)}, SettingError, "but got 6"),
        ({"batch_sizes": (0,)}, SettingError, "`batch_size` to be an integer of at least 1, but got 0"),
        ({"seeds": (-1,)}, StreamError, "`seed` to be an integer from 0"),
        ({"methods": ("tnet",)}, MethodError, "Did you mean 'tent'"),
        ({"reset": "always"}, SettingError, "`reset` to be 'each shift' or 'never', but got 'always'"),
        ({"settings": {"alhpa": 0.9}}, SettingError, "Did you mean 'alpha'"),
        ({"settings": {"alpha": "high"}}, SettingError, "`alpha` to be float, but got 'high'"),
        ({"settings": {"alpha": 2.0}}, SettingError, "`alpha` to be between 0 and 1"),
        ({"place": Place(preset="cifar")}, SettingError, "Unknown preset 'cifar'"),
    ],
)
def test_wrong_values_are_refused_when_the_cells_are_made(changes, kind, words):
    with pytest.raises(kind) as caught:
        dataclasses.replace(Experiment(("tent",)), **changes).cells()
    assert isinstance(caught.value, DeltaError)
    assert words in str(caught.value)


def test_an_experiment_in_toml_is_the_one_in_python(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "mine.toml").write_text(
        """
        data = "folder"
        path = "data"
        model = "resnet20"
        weights = "random"
        preset = "cifar100-c"
        images = 500
        methods = ["tent", "tent+delta"]
        scenarios = ["IS+CB", "DS+CI (rho=0.5, pi=0.05)"]
        corruptions = ["families", "none"]
        severities = [3, 5]
        batch_sizes = 32
        seeds = [2020, 7]
        reset = "each shift"
        statistics = true
        [settings]
        alpha = 0.9
        dot = "soft"
        """,
        encoding="utf-8",
    )
    place = Place("folder", str(tmp_path / "data"), "resnet20", "random", "cifar100-c", 500)
    expected = Experiment(
        ("tent", "tent+delta"),
        place,
        (StreamSpec("IS+CB"), StreamSpec("DS+CI", rho=0.5, pi=0.05)),
        ("families", "none"),
        (3, 5),
        (32,),
        (2020, 7),
        "each shift",
        {"alpha": 0.9, "dot": "soft"},
        True,
    )
    assert from_toml(tmp_path / "mine.toml") == expected
    assert len(expected.cells()) == 2 * 2 * 5 * 2 * 2


def test_a_single_word_is_a_list_of_one():
    experiment = from_mapping(
        {"methods": "tent", "scenarios": "IS+CB", "corruptions": "fog", "severities": 2, "seeds": 3}
    )
    (cell,) = experiment.cells()
    assert (cell.method, str(cell.stream), cell.corruptions, cell.severity) == ("tent", "IS+CB, seed 3", ("fog",), 2)


def test_paths_in_a_file_are_relative_to_it_wherever_one_stands(tmp_path, monkeypatch):
    here = tmp_path / "experiments"
    (here / "images").mkdir(parents=True)
    (here / "net.safetensors").touch()
    (here / "a.toml").write_text('data = "folder"\npath = "images"\nweights = "net.safetensors"\nmethods = "tent"')
    monkeypatch.chdir(tmp_path)
    place = from_toml(here / "a.toml").place
    assert (place.path, place.weights) == (str(here / "images"), str(here / "net.safetensors"))
    monkeypatch.chdir(here)
    assert from_toml(here / "a.toml").place == place
    absolute = from_mapping({"methods": "tent", "data": "folder", "path": str(here / "images")}, tmp_path).place
    assert absolute.path == place.path
    by_name = from_mapping({"methods": "tent", "model": "torchvision:resnet50", "weights": "IMAGENET1K_V1"}, here).place
    assert by_name.weights == "IMAGENET1K_V1"  # no file of that name: it stays a name


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"methods": ["tent"], "method": "tent"}, "Unknown key 'method'. Did you mean 'methods'?"),
        ({"methods": ["tent"], "place": {}}, "Unknown key 'place'"),
        ({"methods": ["tent"], "batchsizes": [4]}, "Did you mean 'batch_sizes'?"),
        ({"corruptions": ["fog"]}, "Expected `methods`, such as ['tent', 'tent+delta'], but there is none."),
        ({"methods": [1]}, "`methods` to be a list of str, but got 1"),
        ({"methods": ["tent"], "severities": ["5"]}, "`severities` to be a list of int, but got '5'"),
        ({"methods": ["tent"], "seeds": [1.5]}, "`seeds` to be a list of int, but got 1.5"),
        ({"methods": ["tent"], "seeds": [True]}, "`seeds` to be a list of int, but got True"),
        ({"methods": ["tent"], "batch_sizes": True}, "`batch_sizes` to be a list of int, but got True"),
        ({"methods": ["tent"], "scenarios": [{"scenario": "IS+CB"}]}, "`scenarios` to be a list of str"),
        ({"methods": ["tent"], "data": "cifar"}, "Expected `path`"),
    ],
)
def test_unknown_keys_and_wrong_types_say_what_was_expected(values, words):
    with pytest.raises(SettingError) as caught:
        from_mapping(values)
    assert words in str(caught.value)


def test_a_scenario_that_is_none_is_refused():
    with pytest.raises(StreamError, match="Expected a stream such as"):
        from_mapping({"methods": "tent", "scenarios": "DS+CB rho 0.1"})
    with pytest.raises(StreamError, match="`rho`"):
        from_mapping({"methods": "tent", "scenarios": "DS+CB"})


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"methods = [", "not readable as TOML"), (None, "Expected an experiment")],
)
def test_a_file_that_is_no_toml_is_refused_by_name(tmp_path, content, words):
    path = tmp_path / "broken.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        from_toml(path)
    assert "broken.toml" in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"settings": "alpha=0.9"},
        {"settings": {"alpha": {"x": 1}}},
        {"statistics": "yes"},
        {"severities": 2.5},
        {"severities": []},
        {"seeds": []},
        {"images": True},
        {"data": "cifar", "path": 5},
        {"model": 5},
        {"preset": ["cifar10-c"]},
        {"methods": None},
    ],
    ids=str,
)
def test_wrong_values_are_errors_made_for_users(values):
    with pytest.raises(DeltaError):
        from_mapping({"methods": "tent", **values}).cells()


def test_a_file_that_is_no_text_is_an_error_made_for_users(tmp_path):
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DeltaError):
        from_toml(tmp_path / "a.toml")


def test_a_network_of_ones_own_beside_the_experiment_is_found(tmp_path, monkeypatch):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "net.py").write_text(NETWORK)
    (tmp_path / "x" / "a.toml").write_text('methods = "tent"\nmodel = "net.py:make"')
    monkeypatch.chdir(tmp_path)
    assert from_toml(tmp_path / "x" / "a.toml").place.model == f"{tmp_path / 'x' / 'net.py'}:make"


def test_a_path_that_is_missing_is_not_looked_for_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "x").mkdir()
    (tmp_path / "images").mkdir()
    (tmp_path / "x" / "a.toml").write_text('methods = "tent"\ndata = "folder"\npath = "images"')
    monkeypatch.chdir(tmp_path)
    assert from_toml(tmp_path / "x" / "a.toml").place.path == str(tmp_path / "x" / "images")
