"""Who may ask for what."""

import base64
import json
import ssl
import subprocess
import sys
import time
import urllib.request

import grpc
import numpy as np
import pytest
from servers import NAME, SMALL, TOKEN, Server
from typer.testing import CliRunner

from delta_tta.cli.commands import app
from delta_tta.serve.messages import SERVICE, messages
from nets import batches

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve")]


def refused(*arguments):
    """Start a service that does not start, and return what it says."""
    runner = CliRunner(env={"DELTA_TTA_TOKEN": None, "NO_COLOR": "1"})
    found = runner.invoke(app, ["serve", *SMALL, "--port", "0", *map(str, arguments)])
    assert found.exit_code == 2, found.output
    return found.output


@pytest.fixture(scope="module")
def running():
    with Server() as server:
        yield server


def test_control_needs_the_token_and_nothing_else_does(running):
    for path in ("/", "/status", "/metrics", "/v2", "/v2/health/live", "/v2/health/ready", f"/v2/models/{NAME}"):
        assert running.ask("GET", path)[0] == 200, path
    for what in ("snapshot", "rollback", "reset", "freeze", "learn", "explode", ""):
        for token in (None, "", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "Ω"):
            headers = {} if token is None else {"Authorization": f"Bearer {token}".encode()}
            status, answer, body = running.ask("POST", f"/control/{what}", headers=headers)
            assert status == 401, (what, token)
            assert answer["WWW-Authenticate"].startswith("Bearer")
            assert TOKEN.encode() not in body
    status = running.status()
    assert status["locked"] is True
    assert [event["kind"] for event in status["events"]] == ["start"]
    assert running.control("snapshot")[0] == 200
    basic = base64.b64encode(f"me:{TOKEN}".encode()).decode()
    assert running.ask("POST", "/control/snapshot", headers={"Authorization": f"Basic {basic}"})[0] == 200
    assert running.ask("GET", "/control/snapshot", token=TOKEN)[0] == 405


def test_pages_of_other_sites_are_refused(running):
    own = f"http://{running.host}:{running.port}"
    for origin, expected in ((own, 200), ("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:1", 403)):
        status = running.ask("POST", "/control/snapshot", headers={"Origin": origin}, token=TOKEN)[0]
        assert status == expected, origin
    for host, expected in (("localhost", 200), ("localhost:99", 200), ("[::1]:8080", 200), ("evil.example", 403)):
        assert running.ask("GET", "/status", headers={"Host": host})[0] == expected, host
    assert running.ask("GET", "/status", headers={"Host": "proxy.example"}, token=TOKEN)[0] == 200


def test_the_page_comes_with_its_policy(running):
    from delta_tta.serve import page

    status, headers, body = running.ask("GET", "/")
    assert (status, body.decode()) == (200, page.page())
    assert headers["Content-Security-Policy"] == page.policy()
    assert headers["Content-Type"].startswith("text/html")


def test_elsewhere_everything_needs_the_token(tmp_path):
    (x,) = batches(1)
    (tmp_path / "token").write_text(TOKEN + "\n")
    with Server("--host", "0.0.0.0", "--token-file", tmp_path / "token", token=None) as server:
        server.host = "127.0.0.1"
        for path in ("/", "/status", "/metrics", "/v2", "/v2/health/live", "/nothing", f"/v2/models/{NAME}"):
            status, headers, _ = server.ask("GET", path)
            assert status == 401, path
            assert headers["WWW-Authenticate"].startswith("Basic" if path == "/" else "Bearer")
        with pytest.raises(Exception, match="401"):
            server.infer(x)
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            live = channel.unary_unary(
                f"/{SERVICE}/ServerLive",
                request_serializer=messages()["ServerLiveRequest"].SerializeToString,
                response_deserializer=messages()["ServerLiveResponse"].FromString,
            )
            for token in (None, "Bearer wrong", TOKEN):
                with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
                    live(messages()["ServerLiveRequest"](), metadata=[("authorization", token)] if token else None)
            assert live(messages()["ServerLiveRequest"](), metadata=[("authorization", f"Bearer {TOKEN}")]).live
        assert server.json("GET", "/v2/health/live", token=TOKEN) == (200, {"live": True})
        assert not [line for line in server.log if TOKEN in line]


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_without_a_token_it_does_not_start_elsewhere(host):
    assert "Expected a token to serve on" in refused("--host", host)


def test_a_token_that_nobody_gave_is_made_and_said():
    with Server(token=None) as server:
        while not server.log:  # the line is on its way
            time.sleep(0.01)
        made = server.log[0].split()[-1]
        assert len(made) >= 32
        assert server.ask("POST", "/control/snapshot")[0] == 401
        assert server.ask("POST", "/control/snapshot", token=made)[0] == 200


def test_bad_tokens_and_files_are_refused_at_the_start(tmp_path):
    assert "at least 16" in refused("--token", "short")
    assert "cannot be read" in refused("--token-file", tmp_path / "missing")
    assert "got both" in refused("--token", TOKEN, "--token-file", tmp_path / "missing")
    assert "together" in refused("--tls-cert", tmp_path / "missing")
    assert "Expected a PEM file" in refused("--tls-cert", tmp_path / "a", "--tls-key", tmp_path / "b")
    assert "--streams shared or separate" in refused("--streams", "both")
    assert "--set NAME=VALUE" in refused("--set", "lr")
    assert "Expected --shape" in refused("--shape", "3,x")
    assert "Expected a --name" in refused("--name", "a b")


def test_a_port_in_use_is_told(running):
    assert "Expected a free address for HTTP" in refused("--port", running.port)
    assert "Expected a free address for gRPC" in refused("--grpc-port", running.grpc_port)


def certificate(folder):
    """A certificate of this machine for itself."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    today = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    kind = serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption()))


def test_tls_for_both(tmp_path):
    certificate(tmp_path)
    files = ["--tls-cert", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem"]
    with Server(*files) as server:
        trusted = ssl.create_default_context(cafile=tmp_path / "cert.pem")
        url = f"https://127.0.0.1:{server.port}/v2/health/ready"
        with urllib.request.urlopen(url, context=trusted) as answer:
            assert answer.read() == b'{"ready":true}'
        credentials = grpc.ssl_channel_credentials((tmp_path / "cert.pem").read_bytes())
        with grpc.secure_channel(f"127.0.0.1:{server.grpc_port}", credentials) as channel:
            live = channel.unary_unary(f"/{SERVICE}/ServerLive", None, messages()["ServerLiveResponse"].FromString)
            assert live(b"").live
        with pytest.raises(ConnectionError):  # plain HTTP
            server.ask("GET", "/v2")


def test_where_it_listens_as_json(tmp_path):
    command = [sys.executable, "-c", "from delta_tta.cli import main; main()", "serve", "resnet20-cifar10", "--json"]
    command += ["--port", "0", "--grpc-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        lines = [process.stdout.readline()]
        while lines[-1].strip() != "}":
            lines.append(process.stdout.readline())
        process.terminate()
        said = json.loads("".join(lines))
        assert process.stdout.read() == ""
    assert said["name"] == "resnet20-cifar10"
    assert said["http"].startswith("http://127.0.0.1:")
    assert said["grpc"].startswith("127.0.0.1:")


def test_no_grpc_where_none_is_wanted():
    with Server("--no-grpc") as server:
        assert server.grpc_port is None
        assert np.isfinite(server.infer(batches(1)[0])).all()
