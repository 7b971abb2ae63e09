"""The decoder that proxies are: a few sizes by name, one learning rate for all, the same numbers from the same seed.

Sizes are named by their parameters without embeddings and head (16 · width² a layer, within 6 % of the name): with a vocabulary of 50,000 those
of the smaller ones would outweigh all else, and a proxy would be named by its tokenizer. Attention stays inside a document; positions are rotary,
so that only distances inside a document count, and the gated units follow the transformers of today (pre-norm RMSNorm, SwiGLU).

Widths and depths follow the maximal-update rules (Yang et al. 2022 and 2023): matrices inside are drawn with sd 1/√(inputs) and learn at
rate · 64/width/√layers, each layer adds 1/√layers of what it makes, embeddings are drawn with sd 1 and learn at the rate itself, the head begins at
zero and its logits are scaled by 64/width. So one rate, found for one layer of width 64, is meant for all sizes.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu

from corpusmill.mixing.proxy import BASE_WIDTH, Size


def rotary(length: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [length, width / 2] (Su et al. 2021, base 10,000), worked out in float64: the same on every machine."""
    angles = torch.arange(length, dtype=torch.float64)[:, None] * 10_000.0 ** (
        -torch.arange(0, width, 2, dtype=torch.float64) / width
    )
    return angles.cos().float(), angles.sin().float()


def turned(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """[rows, heads, length, width] with each pair of numbers turned by its position's angle."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosines - second * sines, first * sines + second * cosines), dim=-1)


class Block(nn.Module):  # type: ignore[misc]  # torch is not followed by the type checker
    def __init__(self, width: int, heads: int, part: float) -> None:
        super().__init__()
        self.heads, self.part = heads, part
        self.before_attention, self.before_mlp = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gated, self.down = (
            nn.Linear(width, 8 * width, bias=False),
            nn.Linear(4 * width, width, bias=False),
        )

    def forward(
        self, x: torch.Tensor, seen: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
    ) -> torch.Tensor:
        rows, length, width = x.shape
        parts = self.qkv(self.before_attention(x)).view(rows, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        query, key = (turned(each, cosines, sines).to(value.dtype) for each in (query, key))
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=seen)
        x = x + self.part * self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        gate, up = self.gated(self.before_mlp(x)).chunk(2, dim=-1)
        return x + self.part * self.down(silu(gate) * up)


class Decoder(nn.Module):  # type: ignore[misc]  # torch is not followed by the type checker
    """Logits of the next token from those before it in its own document."""

    def __init__(self, size: Size, vocabulary: int, length: int) -> None:
        super().__init__()
        self.vocabulary, self.scale = vocabulary, BASE_WIDTH / size.width
        self.inside_rate = self.scale / math.sqrt(size.layers)
        """What matrices inside learn at, as a share of the learning rate."""
        self.token = nn.Embedding(vocabulary, size.width)
        self.blocks = nn.ModuleList(
            Block(size.width, size.heads, 1 / math.sqrt(size.layers)) for _ in range(size.layers)
        )
        self.norm, self.head = nn.RMSNorm(size.width), nn.Linear(size.width, vocabulary, bias=False)
        cosines, sines = rotary(length, size.width // size.heads)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def draw(self, seed: int) -> Decoder:
        """Weights of a seed, drawn on the CPU in the order of their names: the same whatever the device."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, weights in sorted(self.named_parameters()):
                if weights.ndim == 2 and not name.startswith("head."):
                    sd = 1.0 if name.startswith("token.") else 1 / math.sqrt(weights.shape[1])
                    weights.normal_(0.0, sd, generator=generator)
            self.head.weight.zero_()
        return self

    def forward(self, tokens: torch.Tensor, document: torch.Tensor) -> torch.Tensor:
        """[rows, T] ids and the number of each one's document in its row -> [rows, T, vocabulary]."""
        seen = (document[:, :, None] == document[:, None, :]).tril()[:, None]
        x = self.token(tokens)
        length = tokens.shape[1]
        for block in self.blocks:
            x = block(x, seen, self.cosines[:length], self.sines[:length])
        return self.head(self.norm(x)) * self.scale


def groups(model: Decoder, rate: float, decay: float) -> list[dict[str, Any]]:
    """Parameters for the optimizer, in the order of their names: matrices inside learn at a rate of their own, and decay."""
    named = sorted(model.named_parameters())
    matrices = {name for name, weights in named if weights.ndim == 2 and name.startswith("blocks.")}
    return [
        {
            "params": [weights for name, weights in named if name in matrices],
            "lr": rate * model.inside_rate,
            "weight_decay": decay,
        },
        {
            "params": [weights for name, weights in named if name not in matrices],
            "lr": rate,
            "weight_decay": 0.0,
        },
    ]
