"""Run by torchrun: every rank adapts on its share of each batch and writes what it got.

Arguments: output folder, and JSON, a list of runs: name, method, shares (of each step, the size of each rank's share),
settings; and what goes wrong: `die` and `nan` ([rank, step]), `other weights` (rank), `view` (a model that cannot run
on nothing).
"""

import datetime
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))

import delta_tta
from delta_tta.recipe import used_settings
from nets import batches, conv_net, forget_statistics, with_blank


class View(torch.nn.Module):
    def forward(self, x):
        return x.view(x.size(0), -1)


def one(run, rank):
    net = conv_net().double()
    if run.get("other weights") == rank:
        torch.nn.init.normal_(net[0].weight)
    if run.get("no statistics"):
        forget_statistics(net)
    if run.get("view"):
        net = torch.nn.Sequential(*list(net)[:-2], View(), net[-1])
    adapter = delta_tta.adapt(net, run["method"], sync=True, **used_settings(run["method"], run["settings"]))
    answers = []
    if run.get("no statistics"):
        first = batches(1, sum(run["shares"][0]), dtype=torch.float64)[0]
        answers.append(adapter.predict(first.split(run["shares"][0])[rank]))
    stream = with_blank(batches(len(run["shares"]), sum(run["shares"][0]), dtype=torch.float64), 4)
    for step, (x, shares) in enumerate(zip(stream, run["shares"], strict=True)):
        if run.get("die") == [rank, step]:
            os._exit(9)
        own = x.split(shares)[rank]
        if run.get("nan") == [rank, step]:
            try:
                adapter(own * float("nan"))
            except delta_tta.InputError:
                continue  # and go on, as if nothing had happened
        answers.append(adapter(own))
    signals = vars(adapter.signals)
    signals["skipped"] = signals["skipped"] and str(signals["skipped"])  # torch.load takes plain types only
    return {"answers": answers, "state": adapter.state_dict(), "signals": signals}


def main():
    out, runs = Path(sys.argv[1]), json.loads(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=15))
    rank = dist.get_rank()
    for run in runs:
        try:
            torch.save(one(run, rank), out / f"{run['name']}-{rank}.pt")
        except delta_tta.DeltaError as error:
            (out / f"{run['name']}-{rank}.txt").write_text(f"{type(error).__name__}: {error}")
    if not any("die" in run for run in runs):
        dist.destroy_process_group()
    time.sleep(0.5)  # gloo's threads may end the process with an error if Python ends before them (torch 2.13)


if __name__ == "__main__":
    main()
