"""A small decoder trained on a stream of corpusmill: on one process or by DDP, killed and resumed, and rid of documents that harm it.

    python examples/train.py OUT --to RUN --steps 300
    torchrun --nproc-per-node 2 examples/train.py OUT --to RUN --steps 300

RUN/step-00000040/     a checkpoint: weights, optimizer, the bounds for spikes, step and cursor; every rank writes its share while
                       training goes on, and the folder gets its name when all are done. The last `--keep` stay
RUN/log.jsonl          a line a step: loss, gradient norm, loss of its hardest row, `next` of the cursor; and what was quarantined
RUN/samples-*.jsonl    with --log-samples a file a rank: a hash of every row that it trained on

The same command goes on where the last checkpoint is. On CPUs the losses are those of an unbroken run, bit for bit, on one process
and on two (a sum of more depends on how the ranks are asked for their parts); on another number of processes the samples are the
same in the same order. Random numbers are keyed by (seed, step, rank), so that there is no generator whose state could be lost.

A step whose loss, gradient norm or hardest row lies far above the last ones is not taken: all ranks go back to the last checkpoint, the documents
that the model finds hardest are looked up and quarantined from there on, and the steps are done again without them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import xxhash
from decoder import Decoder
from spikes import Spike, Spikes, hardest, quarantine
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.functional import cross_entropy

from corpusmill.shards.permutation import derive
from corpusmill.shards.reader import Shards
from corpusmill.shards.torch import stream_loader


class Checkpoints:
    """Checkpoints of all ranks together; one may be on its way while training goes on."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self.keep = folder, keep
        self.group = dist.new_group(backend="gloo")  # its messages must not meet those of the training
        self.pending: tuple[int, Future[Any]] | None = None

    def path(self, step: int, done: bool = True) -> Path:
        return self.folder / f"{'step' if done else 'unfinished'}-{step:08d}"

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Copies the state and returns; the ranks write their shares meanwhile. A save that is still on its way is waited for."""
        self.wait()
        if dist.get_rank() == 0:  # what a killed process left there
            shutil.rmtree(self.path(step, done=False), ignore_errors=True)
        dist.barrier()
        future = dcp.async_save(state, checkpoint_id=self.path(step, done=False), process_group=self.group)
        self.pending = step, future

    def wait(self) -> None:
        """Until the last save is on disk and has its name; older ones than the last `keep` go."""
        if self.pending is None:
            return
        step, future = self.pending
        future.result()
        self.pending = None
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(self.path(step), ignore_errors=True)
            self.path(step, done=False).rename(self.path(step))
            for old in sorted(self.folder.glob("step-*"))[: -self.keep]:
                shutil.rmtree(old)
        dist.barrier()

    def newest(self) -> int | None:
        """The same on every rank: the first one looks."""
        self.wait()
        steps = sorted(int(path.name.removeprefix("step-")) for path in self.folder.glob("step-*"))
        found = [steps[-1] if steps else None]
        dist.broadcast_object_list(found, src=0)
        return found[0]

    def load(self, step: int, state: dict[str, Any]) -> None:
        dcp.load(state, checkpoint_id=self.path(step), process_group=self.group)


@dataclass
class Training:
    """What a step changes, and what a checkpoint holds."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    spikes: Spikes
    step: int = 0
    cursor: dict[str, Any] | None = None

    def state(self) -> dict[str, Any]:
        weights, optimizer = get_state_dict(self.model, self.optimizer)
        counts = {
            "step": self.step,
            "cursor": json.dumps(self.cursor),
            "last": json.dumps(list(self.spikes.last)),
        }
        return {"model": weights, "optimizer": optimizer, **counts}

    def load(self, checkpoints: Checkpoints, step: int) -> None:
        state = self.state()
        checkpoints.load(step, state)
        set_state_dict(
            self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
        self.step, self.cursor = state["step"], json.loads(state["cursor"])
        self.spikes.last.clear()
        self.spikes.last.extend(json.loads(state["last"]))


def main() -> None:
    options = parse()
    if "RANK" in os.environ:  # torchrun, or any launcher that sets what it sets
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        train(options, Path(options.to))
    finally:
        dist.destroy_process_group()


def train(options: argparse.Namespace, folder: Path) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = own_device(rank)
    torch.set_num_threads(options.threads)  # another number splits sums otherwise: other last bits
    folder.mkdir(parents=True, exist_ok=True)
    shards = Shards(options.data)
    torch.manual_seed(options.seed)
    vocab, length = shards.components[0].manifest.vocab_size, shards.plan.sequence_length
    model = Decoder(vocab, length, options.width, options.layers, options.heads, options.dropout).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.95))
    spikes = Spikes(options.spike_window, options.spike_after, options.spike_sigmas)
    shared = nn.parallel.DistributedDataParallel(model) if ranks > 1 else model  # on the model's own device
    run = Training(shared, optimizer, spikes)
    checkpoints = Checkpoints(folder, options.keep)
    start = checkpoints.newest()
    if start is None:
        run.state()  # makes the optimizer's state by a step that changes no weight, and is no step to be counted
        for state in optimizer.state.values():
            state["step"].zero_()
        checkpoints.save(0, run.state())
    else:
        run.load(checkpoints, start)
    log = Log(folder, rank, ranks, options.log_samples)
    log.line({"event": "start", "step": run.step, "ranks": ranks})
    going_back = 0
    while run.step < options.steps:
        spike = until_spike(run, options, checkpoints, log, device)
        if spike is None:
            continue
        going_back += 1
        if going_back > options.max_rollbacks:
            raise SystemExit(
                f"{going_back} spikes: see {folder}/log.jsonl; a lower --lr may be what this model needs"
            )
        run.load(checkpoints, checkpoints.newest() or 0)
        start = run.cursor["next"] if run.cursor else 0
        for hidden in quarantine(options.data, start, spike):
            log.line({"event": "quarantine", "step": run.step} | hidden)
    if checkpoints.newest() != run.step:
        checkpoints.save(run.step, run.state())
    checkpoints.wait()


def own_device(rank: int) -> torch.device:
    """This process's GPU where there are some; deterministic kernels, on a GPU as far as there are such ones for all that is used."""
    gpus = torch.cuda.device_count()
    if not gpus:
        torch.use_deterministic_algorithms(True)
        return torch.device("cpu")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS needs to be deterministic
    torch.use_deterministic_algorithms(True, warn_only=True)
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank % gpus)))
    torch.cuda.set_device(device)  # barriers of NCCL take the current one
    return device


def until_spike(
    run: Training, options: argparse.Namespace, checkpoints: Checkpoints, log: Log, device: torch.device
) -> Spike | None:
    """Steps from the run's cursor on to the last one, or to a spike."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    loader = stream_loader(
        options.data, options.batch_size, rank, ranks, run.cursor, want=("loss_mask", "position_ids")
    )
    for batch in loader:
        first = loader.state_dict()["next"] - options.batch_size
        torch.manual_seed(derive(options.seed, run.step, rank))
        # Batches lie in pinned memory where there is a GPU: the copy goes on beside what the GPU is at.
        there = {name: part.to(device, non_blocking=True) for name, part in batch.items()}
        losses, loss = forward(run.model, there)
        run.optimizer.zero_grad()
        loss.backward()
        norm = float(nn.utils.clip_grad_norm_(run.model.parameters(), options.clip))
        total = torch.tensor([loss.item() / ranks], dtype=torch.float64)
        dist.all_reduce(total)
        worst = hardest(losses.cpu())
        dist.all_reduce(worst, dist.ReduceOp.MAX)
        found, bounds = [float(total), norm, float(worst)], run.spikes.bounds()
        said = dict(zip(("loss", "norm", "hardest"), found, strict=True))
        if not all(value <= bound for value, bound in zip(found, bounds, strict=True)):  # NaN is none, too
            log.line({"event": "spike", "step": run.step} | said | {"bounds": bounds})
            return Spike(first + rank * options.batch_size // ranks, losses.cpu())
        for group in run.optimizer.param_groups:
            group["lr"] = options.lr * min(1.0, (run.step + 1) / options.warmup)
        run.optimizer.step()
        run.spikes.last.append(found)
        run.step, run.cursor = run.step + 1, loader.state_dict()
        log.line({"step": run.step} | said | {"next": run.cursor["next"]})
        log.samples(run.step, batch["tokens"])
        if run.step % options.save_every == 0:
            checkpoints.save(run.step, run.state())
        if run.step == options.steps:
            return None
    raise SystemExit(
        f"the plan ends at sample {run.cursor and run.cursor['next']}, after {run.step} steps of {options.steps}"
    )


def forward(model: nn.Module, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Losses of this rank's targets (NaN where there is none to learn), and what to go down: the mean over all ranks' targets."""
    inputs, targets, mask = batch["tokens"][:, :-1], batch["tokens"][:, 1:], batch["loss_mask"]
    logits = model(inputs, batch["position_ids"])
    losses = cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none").view_as(targets)
    count = mask.sum()
    dist.all_reduce(count)
    # Ranks have different numbers of targets, and DDP takes the mean of the ranks' gradients.
    loss = (losses * mask).sum() * dist.get_world_size() / count.clamp(min=1)
    return losses.detach().masked_fill(~mask, math.nan), loss


class Log:
    """Lines that are appended; what a killed process did after its last checkpoint stands there twice, the later one counts."""

    def __init__(self, folder: Path, rank: int, ranks: int, with_samples: bool) -> None:
        self.rank, self.ranks = rank, ranks
        self.path = folder / "log.jsonl"
        self.rows = folder / f"samples-{rank}-of-{ranks}.jsonl" if with_samples else None
        for path in (self.path if rank == 0 else None, self.rows):
            if path is not None and path.exists():
                os.truncate(path, path.read_bytes().rfind(b"\n") + 1)  # a kill may have cut its last line

    def line(self, value: dict[str, Any]) -> None:
        if self.rank == 0:
            append(self.path, value)

    def samples(self, step: int, tokens: torch.Tensor) -> None:
        if self.rows is not None:
            hashes = [xxhash.xxh3_64_hexdigest(row.numpy().tobytes()) for row in tokens]
            append(self.rows, {"step": step, "rank": self.rank, "ranks": self.ranks, "rows": hashes})


def append(path: Path, value: dict[str, Any]) -> None:
    """One write a line: whoever reads it meanwhile, or after a kill, finds whole lines and at most the beginning of one behind them."""
    with path.open("ab", buffering=0) as file:
        file.write((json.dumps(value) + "\n").encode())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A small decoder on a stream of corpusmill.")
    parser.add_argument("data", help="OUT of a run, or a plan.json")
    parser.add_argument(
        "--to", required=True, help="folder of checkpoints and log; the same command goes on there"
    )
    numbers = {"steps": 200, "batch-size": 16, "save-every": 20, "keep": 3, "seed": 17, "threads": 1}
    sizes = {"width": 64, "layers": 2, "heads": 4, "warmup": 20}
    spikes = {"spike-window": 32, "spike-after": 24, "max-rollbacks": 8}
    rates = {"lr": 3e-3, "clip": 1.0, "dropout": 0.1, "spike-sigmas": 8.0}
    for name, value in (numbers | sizes | spikes | rates).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    parser.add_argument("--log-samples", action="store_true", help="a hash of every row, a file a rank")
    return parser.parse_args()


if __name__ == "__main__":
    main()
