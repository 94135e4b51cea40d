"""The metrics: what was counted, by their names."""

import asyncio

import pytest

from nets import batches
from serving import request, serving, settled

pytest.importorskip("prometheus_client")
from prometheus_client.parser import text_string_to_metric_families

from delta_tta.serve.metrics import PREFIX, Collector, exposition


def read(service):
    """Values by name and labels."""
    text = exposition(Collector(service), "")[0].decode()
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    return {(one.name.removeprefix(PREFIX), *one.labels.values()): one.value for one in samples}


def test_what_was_answered_and_learnt_is_counted(tmp_path):
    async def work():
        async with serving(folder=tmp_path, every=1) as service:
            for x in batches(3):
                await service.infer(request(x))
            await service.infer(request(batches(1)[0], learn=False))
            service.journal.refused(413)
            await settled(service)
            found = read(service)
            assert found["requests_total",] == 5
            assert found["samples_total",] == 48
            assert found["learnt_samples_total",] == found["used_samples_total",] == 36
            assert found["errors_total", "413"] == 1
            assert found["batch_size_bucket", "16.0"] == found["batch_size_count",] == 4
            assert found["batch_size_bucket", "8.0"] == 0
            assert found["batch_size_sum",] == 48
            assert found["latency_seconds_count",] == 4
            assert (found["learning",], found["streams",], found["waiting",]) == (1, 1, 0)
            assert sum(value for name, value in found.items() if name[0] == "class_frequency") == pytest.approx(1)
            signals = service.places["shared"].slot.signals
            assert found["entropy", "shared"] == pytest.approx(signals.entropy)
            assert found["used", "shared"] == signals.used == 1
            assert (found["checkpoint_failures_total",], found["checkpoint_failing",]) == (0, 0)
            assert 0 <= found["checkpoint_age_seconds",] < 60

    asyncio.run(work())


def test_what_there_is_not_is_left_out():
    async def work():
        async with serving("source+sticky", learning=False) as service:
            found = read(service)
            assert found["learning",] == 0
            assert not [name for name in found if name[0] in ("entropy", "class_frequency", "checkpoint_failing")]
            service.learning = True
            await service.infer(request(batches(1)[0]))
            await settled(service)
            found = read(service)
            assert 0 <= found["stays", "shared"] <= 1
            assert ("source_share", "shared") not in found
            assert ("accuracy", "shared") not in found

    asyncio.run(work())


def test_the_share_of_the_source_is_what_the_stream_has_not():
    async def work():
        async with serving("anchored") as service:
            await service.infer(request(batches(1)[0]))
            await settled(service)
            share = service.places["shared"].slot.signals.share
            assert read(service)["source_share", "shared"] == pytest.approx(1 - share)

    asyncio.run(work())


def test_batches_that_were_not_learnt_from_have_a_reason():
    async def work():
        async with serving("pl") as service:
            service.places["shared"].slot.adapter._updater.objective.threshold = 1.1  # no sample passes
            await service.infer(request(batches(1)[0]))
            await settled(service)
            assert read(service)["skipped_batches_total", "threshold"] == 1

    asyncio.run(work())
