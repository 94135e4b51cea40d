"""The server: its addresses, and that it serves until it is told to end."""

import json
import os
import signal
import socket
import threading
import urllib.request

import pytest

import delta_tta
from delta_tta.errors import SettingError
from delta_tta.serve.security import Gate
from delta_tta.serve.service import Options, Service
from nets import conv_net
from serving import WANTED

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")
pytest.importorskip("grpc")
from delta_tta.serve.server import Address, run

GATE = Gate("0123456789abcdef", everything=False)


def made():
    return Service("conv", lambda: delta_tta.adapt(conv_net(), "tent"), WANTED, Options())


def test_a_certificate_and_its_key_come_together(tmp_path):
    (tmp_path / "cert.pem").touch()
    with pytest.raises(SettingError, match="--tls-cert and --tls-key together"):
        Address(certificate=tmp_path / "cert.pem")
    with pytest.raises(SettingError, match=r"a PEM file at .*key\.pem, but there is none"):
        Address(certificate=tmp_path / "cert.pem", key=tmp_path / "key.pem")
    assert Address(certificate=tmp_path / "cert.pem", key=tmp_path / "cert.pem").port == 8080


def test_an_address_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingError, match=f"free address for HTTP, but 127.0.0.1:{port} cannot be used"):
            run(made, Address(port=port, grpc_port=None), GATE, pytest.fail)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_serves_until_sigterm_and_then_ends_its_service():
    services, found = [], {}
    before = signal.signal(signal.SIGTERM, lambda number, frame: found.update(number=number))

    def make():
        services.append(made())
        return services[0]

    def announce(where):
        found.update(where)

        def ask():
            try:
                with urllib.request.urlopen(f"{where['http']}/v2/health/ready", timeout=20) as answer:
                    found["answer"] = json.loads(answer.read())
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=ask).start()

    try:
        run(make, Address(port=0, grpc_port=0), GATE, announce)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert found["answer"] == {"ready": True}
    assert (found["name"], found["http"].startswith("http://127.0.0.1:")) == ("conv", True)
    assert found["grpc"].startswith("127.0.0.1:")
    assert found["number"] == signal.SIGTERM  # who handled it before gets it
    assert not services[0].ready
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
