"""Trains one proxy on one mixture through our own stream, and measures it on every target.

    records = train(view, training, weights_ppb, seed=0, run="anchor-0", device="cpu")      # a Record a target

On the CPU: float32, one thread, deterministic kernels: the same records bit for bit on one machine, whoever runs it. On a GPU: bf16 matrix
products, deterministic as far as there are such kernels. Tokens of each component are counted as they are learnt (padding is not), and each
document's bits are kept, so that two mixtures can be compared document by document.

Losses are of the decoder as it stands after the last step, whose learning rate has come down to 0. Needs the `train` extra (torch).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from corpusmill.mixing.held import Held
from corpusmill.mixing.proxy import Training, View, plan_of, work
from corpusmill.mixing.records import Record, bits_per_byte
from corpusmill.pipeline.errors import RunError
from corpusmill.shards.permutation import derive
from corpusmill.shards.reader import Shards
from corpusmill.shards.stream import Stream, slicing

if TYPE_CHECKING:
    import torch

    from corpusmill.mixing.decoder import Decoder

LOGITS = {"cpu": 1 << 25, "cuda": 1 << 30}
"""Numbers that a forward pass may make of logits: 128 MB or 4 GB of float32. Larger batches are learnt in parts that add up."""

BETAS, CLIP = (0.9, 0.95), 1.0


def train(
    view: View, training: Training, weights_ppb: Mapping[str, int], seed: int, run: str, device: str = "cpu"
) -> list[Record]:
    """What the run says of each target. Raises RunError for one that comes apart, ShardError for damaged shards."""
    with alone(device):
        shards = Shards(view.root, plan=plan_of(view, training, weights_ppb, seed))
        model = drawn(view, training, seed).to(device)
        tokens = learn(model, shards, training, device, run)
        bits = {held.name: measure(model, held, device) for held in view.targets}
    shared: dict[str, Any] = {
        "run": run,
        "components": view.names,
        "requested_ppb": tuple(weights_ppb.get(name, 0) for name in view.names),
        "realised_tokens": tuple(tokens),
        "seed": seed,
        "proxy": training.id(view.manifest),
        "flops": flops(view, training),
    }
    return [_record(held, bits[held.name], shared) for held in view.targets]


def _record(held: Held, bits: npt.NDArray[np.float64], shared: Mapping[str, Any]) -> Record:
    there = held.document_bytes > 0
    if not np.isfinite(bits).all():
        raise RunError(
            f"proxy run {shared['run']}: its loss on target {held.name} is no number: it came apart in its last step; lower the proxy's learning_rate"
        )
    tokens = int(held.predicted().sum())
    return Record(
        **shared,
        target=held.name,
        loss=float(bits.sum()) * float(np.log(2.0)) / tokens,
        bits_per_byte=bits_per_byte(bits[there], held.document_bytes[there]),
        eval_tokens=tokens,
        eval_bytes=int(held.document_bytes.sum()),
        document_bits=bits[there],
        document_bytes=held.document_bytes[there],
    )


def flops(view: View, training: Training) -> float:
    """Of the training."""
    length = view.manifest.sequence_length
    tokens = training.steps(length) * training.batch_rows(length) * length
    return float(tokens) * work(training.shape, view.manifest.vocab_size, length)


@contextmanager
def alone(device: str) -> Iterator[None]:
    """One thread and deterministic kernels while a proxy is trained; what torch was set to comes back after."""
    import torch

    threads, exact = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)  # sums of several threads are added in another order
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS needs to be deterministic
    torch.use_deterministic_algorithms(True, warn_only=device != "cpu")
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(exact)


def drawn(view: View, training: Training, seed: int) -> Decoder:
    from corpusmill.mixing.decoder import Decoder

    manifest = view.manifest
    model = Decoder(training.shape, manifest.vocab_size, manifest.sequence_length)
    return model.draw(derive("proxy", seed))


def learn(
    model: Decoder,
    shards: Shards,
    training: Training,
    device: str,
    run: str,
    enough: Callable[[int], bool] = lambda steps: False,
) -> npt.NDArray[np.int64]:
    """One pass over the plan; returns the targets that were learnt of each component. `enough` may end it after so many steps."""
    import torch

    from corpusmill.mixing.decoder import groups

    length = shards.plan.sequence_length
    rows, steps = training.batch_rows(length), training.steps(length)
    optimizer = torch.optim.AdamW(groups(model, training.learning_rate, training.weight_decay), betas=BETAS)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: _share(step, steps, training.warmup)
    )
    tokens = np.zeros(len(shards.components), np.int64)
    part = slicing(shards.plan, rows, 0, 1, ("loss_mask", "position_ids"))
    with Stream(shards, part, 0, 0 if device == "cpu" else 2) as batches:
        for step, batch in enumerate(batches):
            component = shards.order.samples(step * rows, (step + 1) * rows).component
            learnt = batch["loss_mask"].sum(axis=1)
            tokens += np.bincount(component, learnt, len(tokens)).astype(np.int64)
            optimizer.zero_grad()
            loss = _descend(model, batch, device)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            if not torch.isfinite(norm):
                raise RunError(
                    f"proxy run {run}: the loss is {loss} at step {step} of {steps}; lower the proxy's learning_rate"
                )
            optimizer.step()
            scheduler.step()
            if enough(step + 1):
                break
    return tokens


def _share(step: int, steps: int, warmup: float) -> float:
    """Of the learning rate: up in a line over the first steps, then down in a line to 0."""
    up = max(1, round(warmup * steps))
    return min((step + 1) / up, (steps - step) / max(1, steps - up))


def _descend(model: Decoder, batch: Mapping[str, npt.NDArray[Any]], device: str) -> float:
    """Adds the gradient of the batch's mean loss, part by part."""
    total, count = 0.0, max(1, int(batch["loss_mask"].sum()))
    for rows in _parts(model, batch["loss_mask"], device):
        losses = _losses(model, batch["tokens"][rows], batch["position_ids"][rows] == 0, device)
        mask = _there(batch["loss_mask"][rows], device)
        loss = (losses * mask).sum() / count
        loss.backward()
        total += float(loss.detach())
    return total


def measure(model: Decoder, held: Held, device: str) -> npt.NDArray[np.float64]:
    """Bits of each of a target's documents; 0 for one of which nothing is predicted."""
    import torch

    bits = np.zeros(len(held.document_bytes))
    there = held.predicted()
    begins = np.diff(held.document[:, :-1], axis=1, prepend=-2) != 0
    with torch.inference_mode():
        for rows in _parts(model, there, device):
            losses = _losses(model, held.tokens[rows], begins[rows], device).cpu().numpy().astype(np.float64)
            owner = held.document[rows, 1:][there[rows]]
            bits += np.bincount(owner, losses[there[rows]], len(bits)) / np.log(2.0)
    return bits


def _parts(model: Decoder, mask: npt.NDArray[np.bool_], device: str) -> list[slice]:
    """Rows of a forward pass: as many as LOGITS allows, the same on every machine."""
    rows, length = mask.shape
    most = max(1, LOGITS[device.partition(":")[0]] // (length * model.vocabulary))
    return [slice(at, min(at + most, rows)) for at in range(0, rows, most)]


def _losses(
    model: Decoder, tokens: npt.NDArray[Any], begins: npt.NDArray[np.bool_], device: str
) -> torch.Tensor:
    """[rows, T] nats of each row's tokens from the second on; `begins`: where an input is the first of its document in the row."""
    import torch
    from torch.nn.functional import cross_entropy

    ids = _there(tokens.astype(np.int64), device)
    document = _there(begins, device).cumsum(1)
    with torch.autocast("cuda", torch.bfloat16, enabled=device != "cpu"):
        logits = model(ids[:, :-1], document)
    targets = ids[:, 1:]
    found = cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
    return found.view_as(targets)


def _there(array: npt.NDArray[Any], device: str) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
