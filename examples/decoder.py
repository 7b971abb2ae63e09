"""A small decoder-only transformer, plainly written; nothing in it knows of corpusmill."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.before_attention, self.before_mlp = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        parts = self.qkv(self.before_attention(x)).view(rows, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=seen, dropout_p=dropout)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp(self.before_mlp(x))


class Decoder(nn.Module):
    """Logits of the next token; a token sees those before it in its own document, by the positions that the stream gives."""

    def __init__(self, vocab: int, length: int, width: int, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocab, bias=False)
        for weights in (self.token.weight, self.place.weight, self.head.weight):
            nn.init.normal_(weights, std=0.02)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        document = (positions == 0).cumsum(1)
        seen = (document[:, :, None] == document[:, None, :]).tril()[:, None]
        x = self.token(tokens) + self.place(positions)
        for block in self.blocks:
            x = block(x, seen)
        return self.head(self.norm(x))
