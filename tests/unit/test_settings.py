"""Settings and presets: typed, checked, and the paper's."""

import copy
import dataclasses
import pickle

import pytest

import delta_tta
from delta_tta import PRESETS, SettingError, Settings, registry
from delta_tta.objectives import Tent
from delta_tta.options import OptimizerOptions
from delta_tta.recipe import used_settings
from delta_tta.registry import COMPONENTS, SETTINGS
from delta_tta.reweighting import Reweighting
from delta_tta.settings import COMMON, RECOMMENDED_DEFAULTS, make_settings, settings_of, used_by
from nets import conv_net, group_norm


def test_anchored_methods_have_our_defaults():
    for method in ("anchored", "tent+anchored", "tent+anchored+dot+sticky", None):
        s = delta_tta.adapt(conv_net(), method).settings
        assert {name: getattr(s, name) for name in RECOMMENDED_DEFAULTS} == {
            "update": "auto",
            "guard": "on",
            "estimate": True,
        }
        assert dataclasses.replace(s, update="every", guard="off", estimate=False) == Settings()
    s = delta_tta.adapt(conv_net(group_norm)).settings
    assert (s.update, s.guard) == ("auto", "on")
    s = delta_tta.adapt(conv_net(), "anchored", update="window", guard="off").settings
    assert (s.update, s.guard) == ("window", "off")


def test_given_settings_win_over_the_preset():
    s = make_settings("cifar100-c", {"lr": 0.5, "dot": "soft"})
    assert (s.lr, s.dot, s.optimizer) == (0.5, "soft", "adam")


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().lr = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        PRESETS["mine"] = {}  # type: ignore[index]


@pytest.mark.parametrize(
    ("settings", "teaches"),
    [
        ({"learning_rate": 1}, "Unknown setting 'learning_rate'. Here it is called 'lr'."),
        ({"alhpa": 0.9}, "Did you mean 'alpha'"),
        ({"preset": "imagenet"}, "Did you mean 'imagenet-"),
        ({"preset": "mnist"}, "Known: cifar10-c, cifar100-c"),
        ({"optimizer": "adamw"}, "one of ('sgd', 'adam')"),
        ({"optimizer": 1}, "one of"),
        ({"lr": 0}, "greater than 0"),
        ({"lr": float("nan")}, "greater than 0"),
        ({"lr": float("inf")}, "greater than 0"),
        ({"lr": "0.1"}, "to be float"),
        ({"lr": True}, "to be float"),
        ({"alpha": 1.01}, "between 0 and 1"),
        ({"lam": -0.1}, "between 0 and 1"),
        ({"threshold": 0}, "greater than 0"),
        ({"threshold": "high"}, "float or None"),
        ({"prior": -1}, "at least 0"),
        ({"prior": float("inf")}, "finite"),
        ({"length": 0}, "at least 1"),
        ({"length": 8.0}, "to be int"),
        ({"background": 1}, "to be bool"),
        ({"background": "True"}, "to be bool"),
        ({"init": "last"}, "('first', 'inherit')"),
        ({"init": "auto"}, "write init='first' or init='inherit'"),
        ({"filter": "both"}, "('smooth', 'causal')"),
        ({"pace": "even"}, "'pace', which is gone: leave it out"),
        ({"paper": True}, "leave out `paper`"),
        ({"episodic": True, "update": "slow"}, "update='slow'"),
        ({"prior": 8}, "belongs to 'bn'"),
    ],
)
def test_refusals(settings, teaches):
    net = conv_net()
    with pytest.raises(SettingError) as error:
        delta_tta.adapt(net, "tent+delta", **settings)
    assert teaches in str(error.value)
    delta_tta.adapt(net, "tent+delta")  # the model was not touched


@pytest.mark.parametrize(
    ("method", "settings", "owners"),
    [
        ("bn", {"lr": 0.1}, "'tent', 'pl', 'ent-w', 'eta', 'eata', "),
        ("tent", {"alpha": 0.9}, "'tema', 'tbr', 'anchored', "),
        ("tent+tbr", {"dot": "soft"}, "'dot'."),
        (None, {"neighbours": 3}, "'lame'."),
    ],
)
def test_a_setting_that_no_part_uses_is_refused_and_its_owners_are_named(method, settings, owners):
    with pytest.raises(SettingError, match="is used by no part of") as error:
        delta_tta.adapt(conv_net(), method, **settings)
    assert f"it belongs to {owners}" in str(error.value)
    assert str(error.value).endswith(". Leave it out.")


def test_every_setting_has_an_owner_and_stands_apart_from_those_of_every_method():
    fields = {field.name for field in dataclasses.fields(Settings)} - {"extra"}
    assert fields == set(COMMON)
    builds = [one.build for one in COMPONENTS.values() if one.build.__module__.startswith("delta_tta.")]
    assert not [build.__name__ for build in builds if build.uses]  # they declare what they read
    own = {name for build in builds for name in settings_of(build)}
    assert own <= SETTINGS.keys()
    assert not own & fields
    assert used_by(builds) == own | fields


def test_the_settings_of_a_component_are_attributes():
    s = Settings(lr=0.5, alpha=0.95)
    assert (s.lr, s.alpha, s.views) == (0.5, 0.95, 32)
    assert s.extra == (("lr", 0.5),)
    assert s.options(OptimizerOptions) == OptimizerOptions(lr=0.5)
    assert s == Settings(lr=0.5) != Settings()
    assert dataclasses.replace(s, update="slow", lr=0.1) == Settings(update="slow", lr=0.1)
    for same in (copy.deepcopy(s), pickle.loads(pickle.dumps(s))):
        assert same == s
        assert hash(same) == hash(s)
        assert same.lr == 0.5
    with pytest.raises(AttributeError, match="no setting 'alhpa'"):
        _ = s.alhpa


def test_settings_of_a_preset_that_a_method_does_not_have_are_left_out():
    assert dict(delta_tta.adapt(conv_net(), "bn", "cifar10-c").settings.extra) == {}
    assert dict(delta_tta.adapt(conv_net(), "tent", "cifar10-c").settings.extra) == {
        "lr": 1e-3,
        "optimizer": "adam",
        "reduction": "batch",
    }


def test_components_that_declare_the_same_setting_agree(monkeypatch):
    monkeypatch.setattr(registry, "COMPONENTS", dict(COMPONENTS))
    monkeypatch.setattr(registry, "SETTINGS", dict(SETTINGS))

    @dataclasses.dataclass(frozen=True)
    class Alike:
        alpha: "float" = 0.95

    @dataclasses.dataclass(frozen=True)
    class Other:
        alpha: "float" = 0.5

    class One(Reweighting):
        Options = Alike

    class Two(Reweighting):
        Options = Other

    registry.component("one", "reweighting", "declares what others declare", part=True)(One)
    with pytest.raises(ValueError, match=r"^Expected setting 'alpha' of 'two' to have the type and default of that of"):
        registry.component("two", "reweighting", "declares it otherwise", part=True)(Two)
    assert "two" not in registry.COMPONENTS


def test_a_component_has_the_settings_of_its_base_classes_and_those_that_it_names():
    @dataclasses.dataclass(frozen=True)
    class Own:
        own_power: float = 2.0

    class Powered(Tent):
        Options = Own
        uses = ("alpha",)

    assert settings_of(Powered) == ("alpha", "lr", "optimizer", "reduction", "own_power")
    assert make_settings("cifar10-c", {}, [Powered]).lr == 1e-3


def test_the_prior_belongs_to_batch_statistics_without_an_objective():
    delta_tta.adapt(conv_net(), "bn+sticky", prior=8).unload()
    assert used_settings("bn+sticky", {"prior": 8}) == {"prior": 8}
    assert used_settings("tent", {"prior": 8}) == {}


def test_american_spelling_is_accepted():
    assert delta_tta.adapt(conv_net(), "lame", neighbors=3).settings.neighbours == 3
    with pytest.raises(SettingError, match="not both"):
        delta_tta.adapt(conv_net(), "lame", neighbors=3, neighbours=4)


def test_an_integer_is_a_fine_number():
    assert isinstance(make_settings(None, {"lr": 1}).lr, float)


def test_settings_outside_of_the_package_may_come_by_themselves():
    adapter = delta_tta.adapt(conv_net(), "tent", lr=0.1, extra={"reduction": "batch"})
    assert adapter.settings == Settings(lr=0.1, reduction="batch")
    adapter.unload()
    for extra, words in (
        ({"lr": 0.2}, "Expected `lr` once"),
        ({"lrr": 0.2}, "Unknown setting 'lrr'. Did you mean 'lr'"),
    ):
        with pytest.raises(SettingError, match=words):
            delta_tta.adapt(conv_net(), "tent", lr=0.1, extra=extra)
