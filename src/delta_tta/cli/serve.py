"""delta-tta serve."""

from __future__ import annotations

import copy
import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import SettingError, install
from .support import completion as completion
from .support.console import Json, print_json, say
from .support.options import Mean, Preset, Std, read_value

EXAMPLES = """
Examples:
  delta-tta serve resnet20-cifar10 --checkpoints states        # on this machine alone, the embedded network
  delta-tta serve torchvision:resnet50 --streams separate --checkpoints states --max-batch 32 --max-wait 5
  delta-tta serve timm:resnet50 --host 0.0.0.0 --token-file token --tls-cert cert.pem --tls-key key.pem
"""
NEEDS = ("uvicorn", "starlette", "grpc", "google.protobuf", "prometheus_client")


def serve(
    model: Annotated[str, typer.Argument(autocompletion=completion.model, help="See delta_tta.models.load.")],
    method: Annotated[
        str | None,
        typer.Option("--method", "-m", autocompletion=completion.method, help="Default: adapt()'s, without +mirror."),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="A .safetensors file or torch checkpoint, or the name of published ones.")
    ] = None,
    classes: Annotated[int | None, typer.Option(min=2, help="Outputs of the model, where it does not say.")] = None,
    mean: Mean = None,
    std: Std = None,
    preset: Preset = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", autocompletion=completion.setting, help="A setting, as lr=0.001; repeat for more."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Of the model in the protocol. Default: the last part of MODEL.")
    ] = None,
    shape: Annotated[
        str | None, typer.Option(help="Of one sample, as 3,224,224. Default: what the model was trained on.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Where the model runs, as cuda:0. Default: the CPU.")] = None,
    host: Annotated[str, typer.Option(help="Where to listen; others than this machine need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of HTTP; 0 takes a free one.")] = 8080,
    grpc_port: Annotated[int, typer.Option(min=0, max=65535, help="Of gRPC; 0 takes a free one.")] = 8081,
    grpc: Annotated[bool, typer.Option("--grpc/--no-grpc", help="Whether to serve gRPC.")] = True,
    streams: Annotated[str, typer.Option(help="shared: one state for all streams; separate: one for each.")] = "shared",
    max_streams: Annotated[
        int, typer.Option(min=1, help="Separate states in memory; the one least recently used is saved and dropped.")
    ] = 16,
    checkpoints: Annotated[Path | None, typer.Option(help="Folder of the states; default: they are not kept.")] = None,
    every: Annotated[int, typer.Option(min=1, help="Batches from one checkpoint to the next.")] = 100,
    seconds: Annotated[float, typer.Option(min=0.1, help="Or so many seconds.")] = 30.0,
    max_batch: Annotated[
        int, typer.Option(min=0, help="Samples of several requests in one batch; 0: no batching.")
    ] = 0,
    max_wait: Annotated[float, typer.Option(min=0, help="Milliseconds that a request waits for others.")] = 0.0,
    max_bytes: Annotated[int, typer.Option(min=1024, help="The largest request.")] = 64 * 2**20,
    max_samples: Annotated[int, typer.Option(min=1, help="The most samples in a request.")] = 256,
    frozen: Annotated[bool, typer.Option("--frozen", help="Learn nothing until POST /control/learn.")] = False,
    learn: Annotated[
        str,
        typer.Option(
            help="before the answer; in the background; or after it, in another run of the model: the least latency."
        ),
    ] = "background",
    token: Annotated[
        str | None, typer.Option(help="The secret; better in DELTA_TTA_TOKEN or a file: others see a command.")
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="File that holds the secret.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate (PEM), for HTTPS and gRPC.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    as_json: Json = False,
) -> None:
    """Serve a model that adapts, over the Open Inference Protocol (REST and gRPC).

    GET / shows a page, /status and /metrics the numbers; POST /control/… freezes, resets, saves and restores. SIGTERM
    answers what has come and saves all states.
    """
    require()
    from ..serve import security, server
    from ..serve.batching import Batching
    from ..serve.service import Options
    from ..serve.start import Model, make_service

    if streams not in ("shared", "separate"):
        raise SettingError(f"Expected --streams shared or separate, but got {streams!r}.")
    if learn not in ("before", "background", "after"):
        raise SettingError(f"Expected --learn before, background or after, but got {learn!r}.")
    gate = security.gate_of(host, token, token_file)
    address = server.Address(host, port, grpc_port if grpc else None, tls_cert, tls_key, max_bytes)
    options = Options(
        "separate" if streams == "separate" else "shared",
        max_streams,
        checkpoints,
        every,
        seconds,
        batching=Batching(max_batch, max_wait / 1000),
        learning=not frozen,
        ahead=learn == "after",
    )
    settings = {**_settings(setting), **({"background": True} if learn == "background" else {})}
    chosen = Model(
        model,
        weights=weights,
        classes=classes,
        mean=mean,
        std=std,
        method=method,
        preset=preset,
        settings=settings,
        name=name,
        shape=_sizes(shape),
        most=max_samples,
        device=device,
    )
    make = make_service(chosen, copy.deepcopy(options))
    if gate.generated:
        say(f"The token for /control/: {gate.token}")
    server.run(make, address, gate, print_json if as_json else _announce)


def _announce(where: dict[str, str | None]) -> None:
    """Say where the service is."""
    grpc = "" if where["grpc"] is None else f", gRPC at {where['grpc']}"
    typer.echo(f"Serving {where['name']} at {where['http']}{grpc}")


def require() -> None:
    """Say what to install where a package of the extra is missing."""
    for package in NEEDS:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise ImportError(f"Serving needs the package {error.name or package}: {install('serve')}") from None


def _settings(given: list[str] | None) -> dict[str, Any]:
    found = {}
    for one in given or []:
        name, equals, value = one.partition("=")
        if not equals:
            raise SettingError(f"Expected --set NAME=VALUE, but got {one!r}.")
        found[name] = read_value(value)
    return found


def _sizes(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise SettingError(f"Expected --shape as 3,224,224, but got {text!r}.")
    return tuple(int(part) for part in parts)
