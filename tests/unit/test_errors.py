"""The classes of the errors."""

import delta_tta


def test_all_errors_share_a_base_and_are_value_errors():
    for name in ("InputError", "MethodError", "ModelError", "SettingError", "StateError", "StreamError"):
        kind = getattr(delta_tta, name)
        assert issubclass(kind, delta_tta.DeltaError)
        assert issubclass(kind, ValueError)
