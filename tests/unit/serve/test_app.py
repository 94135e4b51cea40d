"""The routes over HTTP, asked in this process: what they answer, and who may ask."""

import asyncio
import json

import pytest

from delta_tta.errors import InputError, StateError
from delta_tta.serve.inference import RefusedError
from delta_tta.serve.protocol import HEADER
from delta_tta.serve.security import Gate
from nets import batches
from serving import fetched, serving, settled

pytest.importorskip("starlette")
from delta_tta.serve.app import SERVER, explained, make_app
from delta_tta.serve.served import Local

TOKEN = "0123456789abcdef"
AT_HOME, AWAY = Gate(TOKEN, everything=False), Gate(TOKEN, everything=True)
INFER = "/v2/models/conv/infer"


def body(x):
    one = {"name": "input", "datatype": "FP32", "shape": list(x.shape), "data": x.flatten().tolist()}
    return json.dumps({"inputs": [one], "id": "seven"}).encode()


def with_app(work, gate=AT_HOME, most=100_000, **options):
    """Run a coroutine on the application of a service."""

    async def go():
        async with serving(**options) as service:
            await work(make_app(Local(service), gate, most), service)

    asyncio.run(go())


def test_a_request_is_answered_and_learnt_from():
    async def work(app, service):
        (x,) = batches(1, size=2)
        for path in (INFER, "/v2/models/conv/versions/1/infer"):
            status, _, found = await fetched(app, "POST", path, body(x))
            assert (status, found["id"], found["model_name"]) == (200, "seven", "conv")
            assert [one["name"] for one in found["outputs"]] == ["logits", "probabilities", "classes"]
        await settled(service)
        assert service.journal.samples == 4

    with_app(work)


def test_what_is_told_about_the_server_and_the_model():
    async def work(app, service):
        assert (await fetched(app, "GET", "/v2"))[2] == SERVER
        assert (await fetched(app, "GET", "/v2/health/live"))[2] == {"live": True}
        assert (await fetched(app, "GET", "/v2/health/ready"))[0] == 200
        about = (await fetched(app, "GET", "/v2/models/conv"))[2]
        assert about["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 3, 8, 8]}]
        assert (await fetched(app, "GET", "/v2/models/conv/ready"))[2] == {"name": "conv", "ready": True}
        status, headers, page = await fetched(app, "GET", "/")
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "script-src 'sha256-" in headers["content-security-policy"]
        assert page.startswith(b"<!")
        status, headers, found = await fetched(app, "GET", "/status")
        assert (status, headers["cache-control"], found["model"]["name"]) == (200, "no-store", "conv")
        service.ready = False
        assert (await fetched(app, "GET", "/v2/health/ready"))[0] == 503
        assert (await fetched(app, "GET", "/v2/models/conv/ready"))[0] == 503

    with_app(work)


def test_a_request_that_is_refused_is_counted_and_says_why():
    async def work(app, service):
        x = batches(1, size=1)[0]
        for path, content, headers, status, words in (
            ("/v2/models/other/infer", body(x), {}, 404, "Expected the model 'conv', version 1, but got 'other'"),
            ("/v2/models/conv/versions/2/infer", body(x), {}, 404, "but got 'conv', '2'"),
            (INFER, b"{", {}, 400, "Expected a request in JSON"),
            (INFER, body(x[:, :2]), {}, 400, "Expected shape"),
            (INFER, body(x), {HEADER: "99999"}, 400, "length of the JSON"),
            (INFER, b"x" * 9001, {}, 413, "a body of at most 9,000 bytes"),
            (INFER, body(x), {"content-length": "9001"}, 413, "a body of at most 9,000 bytes"),
            (INFER, body(x), {"content-encoding": "gzip"}, 415, "not compressed"),
        ):
            found = await fetched(app, "POST", path, content, **headers)
            assert found[0] == status
            assert words in found[2]["error"]
        assert sum(service.journal.refusals.values()) == service.journal.errors == 8
        assert service.journal.samples == 0

    with_app(work, most=9000)


def test_control_routes_need_the_token_everywhere():
    async def work(app, service):
        status, headers, found = await fetched(app, "POST", "/control/freeze")
        assert (status, headers["www-authenticate"]) == (401, 'Bearer realm="delta-tta"')
        assert "Authorization: Bearer TOKEN" in found["error"]
        assert service.learning
        token = {"authorization": f"Bearer {TOKEN}"}
        assert (await fetched(app, "POST", "/control/freeze", **token))[2] == {"done": "The service learns no more"}
        assert not service.learning
        assert (await fetched(app, "POST", "/control/explode", **token))[0] == 404
        assert (await fetched(app, "POST", "/control/reset", b"{", **token))[0] == 400
        assert (await fetched(app, "POST", "/control/reset", b"3", **token))[2]["error"].startswith("Expected a JSON")

    with_app(work)


def test_a_service_that_others_can_reach_needs_the_token_for_everything():
    async def work(app, service):
        status, headers, _ = await fetched(app, "GET", "/")
        assert (status, headers["www-authenticate"]) == (401, 'Basic realm="delta-tta"')  # a browser asks for it
        assert (await fetched(app, "GET", "/status"))[0] == 401
        assert (await fetched(app, "GET", "/status", authorization=f"Bearer {TOKEN}"))[0] == 200

    with_app(work, AWAY)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://localhost"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1:8080"}, 200),
        ({"host": "evil.example", "authorization": f"Bearer {TOKEN}"}, 200),
        ({"origin": "https://evil.example", "authorization": f"Bearer {TOKEN}"}, 403),
    ],
)
def test_pages_of_other_sites_ask_in_vain(headers, status):
    async def work(app, service):
        assert (await fetched(app, "GET", "/status", **headers))[0] == status

    with_app(work)


def test_errors_become_a_status_and_a_sentence(caplog):
    assert explained(RefusedError(503, "later")) == (503, "later")
    assert explained(InputError("no images")) == (400, "no images")
    assert explained(StateError("another model")) == (409, "another model")
    assert not caplog.records
    assert explained(ArithmeticError("a secret")) == (
        500,
        "The model failed: ArithmeticError. The log of the service has more.",
    )
    assert "a secret" in caplog.text
