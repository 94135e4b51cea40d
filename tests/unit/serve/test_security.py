"""The gate."""

import base64

import pytest

from delta_tta.errors import SettingError
from delta_tta.serve.security import VARIABLE, gate_of, host_alone, loopback, of_another_site

TOKEN = "0123456789abcdef"


def test_addresses_of_this_machine():
    assert all(map(loopback, ("127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost", "LOCALHOST")))
    assert not any(map(loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "localhost.example.org", "")))
    assert host_alone("127.0.0.1:80") == "127.0.0.1"
    assert host_alone("[::1]:80") == "::1"
    assert host_alone("localhost") == "localhost"


def test_who_opens_the_gate(monkeypatch):
    monkeypatch.setenv(VARIABLE, TOKEN)
    gate = gate_of("127.0.0.1", None, None)
    assert (gate.everything, gate.generated) == (False, False)
    basic = base64.b64encode(f"x:{TOKEN}".encode()).decode()
    assert all(map(gate.opens, (f"Bearer {TOKEN}", f"bearer  {TOKEN} ", f"Basic {basic}")))
    wrong = (None, "", TOKEN, "Bearer", "Bearer ", f"Token {TOKEN}", "Bearer é", "Basic !", f"Basic {TOKEN}", "Basic ")
    assert not any(map(gate.opens, wrong))
    assert gate.needs("/control/reset")
    assert not gate.needs("/status")
    assert gate_of("0.0.0.0", None, None).needs("/status")


def test_where_the_token_comes_from(monkeypatch, tmp_path):
    monkeypatch.delenv(VARIABLE, raising=False)
    made, other = gate_of("localhost", None, None), gate_of("localhost", None, None)
    assert made.generated
    assert made.token != other.token
    (tmp_path / "file").write_text(f"{TOKEN}\n")
    assert gate_of("10.0.0.1", None, tmp_path / "file").token == TOKEN
    for token in ("short", "with spaces in between", "ümlauts are not allowed", ""):
        with pytest.raises(SettingError, match="Expected a token of at least 16"):
            gate_of("localhost", token, None)
    with pytest.raises(SettingError, match="which others can reach"):
        gate_of("0.0.0.0", None, None)


def test_origins():
    assert not of_another_site("localhost:8080", None)
    assert not of_another_site("localhost:8080", "http://localhost:8080")
    assert of_another_site("localhost:8080", "http://localhost:9090")
    assert of_another_site("localhost:8080", "null")
    assert of_another_site(None, "http://localhost")
