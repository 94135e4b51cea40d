"""How a stream is written, and which cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_tta import StreamError
from delta_tta.streams import StreamSpec


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (StreamSpec("IS+CB"), "IS+CB, seed 2020"),
        (StreamSpec("DS+CB", rho=1.0, seed=7), "DS+CB (ρ=1), seed 7"),
        (StreamSpec("DS+CI", rho=0.5, pi=0.05), "DS+CI (ρ=0.5, π=0.05), seed 2020"),
        (StreamSpec("DS+CB", rho=0.1, pieces=20), "DS+CB (ρ=0.1, J=20), seed 2020"),
        (StreamSpec("natural"), "natural"),
    ],
)
def test_a_spec_prints_as_the_paper_writes_it_and_parses_back(spec, text):
    assert str(spec) == text
    assert StreamSpec.parse(text) == spec
    assert hash(StreamSpec.parse(text)) == hash(spec)


def test_parse_takes_plain_letters_too():
    assert StreamSpec.parse("DS+CI (rho=0.5, pi=0.05)") == StreamSpec("DS+CI", rho=0.5, pi=0.05)
    assert StreamSpec.parse("DS+CI,rho=0.5,pi=0.05") == StreamSpec("DS+CI", rho=0.5, pi=0.05)
    assert StreamSpec.parse("DS+CB, rho=0.1, seed 7") == StreamSpec("DS+CB", rho=0.1, seed=7)


@pytest.mark.parametrize("text", ["", "DS+CB (ρ)", "DS+CB (ρ=x)", "DS+CB (z=1)", "IS+CB, seed x", "IS+CB seed 2020"])
def test_what_cannot_be_parsed_is_refused(text):
    with pytest.raises(StreamError):
        StreamSpec.parse(text)


@given(rho=st.floats(1e-3, 1e3), pi=st.floats(1e-3, 1), seed=st.integers(0, 2**32 - 1), pieces=st.integers(1, 99))
def test_any_spec_parses_back(rho, pi, seed, pieces):
    spec = StreamSpec("DS+CI", rho, pi, seed, pieces)
    assert StreamSpec.parse(str(spec)) == spec
