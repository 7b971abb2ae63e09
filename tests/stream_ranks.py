"""One process of a grid of data- and tensor-parallel ranks: says which rows it was given, and that its peers were given the same.

Arguments: shards, world, rank, rendezvous file, data-parallel size, batches. The last line is JSON: coordinates and hashes.
"""

from __future__ import annotations

import json
import sys

import torch
import torch.distributed as dist
import xxhash
from torch.distributed.device_mesh import init_device_mesh

from corpusmill.shards.torch import stream_loader


def main(path: str, world: int, rank: int, meeting: str, dp_size: int, batches: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (dp_size, world // dp_size), mesh_dim_names=("dp", "tp"))
    loader = stream_loader(path, 8, mesh.get_local_rank("dp"), dp_size, want=("loss_mask", "position_ids"))
    found: list[list[str]] = []
    for batch in loader:
        mine = torch.cat([batch[name].flatten().long() for name in ("tokens", "loss_mask", "position_ids")])
        first = mine.clone()
        dist.broadcast(first, src=rank - rank % (world // dp_size), group=mesh.get_group("tp"))
        assert torch.equal(mine, first), "peers of one tensor-parallel group differ"
        found.append([xxhash.xxh3_64_hexdigest(row.numpy().tobytes()) for row in batch["tokens"]])
        if len(found) == batches:
            break
    at = {name: mesh.get_local_rank(name) for name in ("dp", "tp")}
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps({**at, "next": loader.state_dict()["next"], "batches": found}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))
