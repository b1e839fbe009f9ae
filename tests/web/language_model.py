"""A byte-level transformer of a million parameters with low-rank adapters (LoRA)."""

import torch
from torch import nn
from torch.nn import functional

WIDTH, LAYERS, HEADS, TOKENS = 144, 4, 4, 256


class LowRank(nn.Module):
    """A frozen linear layer W with a trained update: y = Wx + b + 2 B A x, with B = 0 at first.

    Source: Hu et al. (2021), LoRA, section 4.1; names of parameters as in peft.
    """

    def __init__(self, layer: nn.Linear, rank: int = 8) -> None:
        super().__init__()
        self.base_layer = layer
        self.lora_A = nn.ModuleDict({"default": nn.Linear(layer.in_features, rank, bias=False)})
        back = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(back.weight)
        self.lora_B = nn.ModuleDict({"default": back})

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        change: torch.Tensor = self.lora_B["default"](self.lora_A["default"](value))
        base: torch.Tensor = self.base_layer(value)
        return base + 2 * change


class Layer(nn.Module):
    """Causal attention and a gated linear unit, each behind a layer normalisation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mixed = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        rows, length, width = hidden.shape
        query, key, value = (
            part.view(rows, length, HEADS, width // HEADS).transpose(1, 2)
            for part in self.mixed(self.norms[0](hidden)).chunk(3, -1)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(attended.transpose(1, 2).reshape(rows, length, width))
        change: torch.Tensor = self.down(functional.gelu(self.up(self.norms[1](hidden))))
        return hidden + change


class LanguageModel(nn.Module):
    """A causal transformer of bytes with learned positions."""

    def __init__(
        self, context: int = 64, width: int = WIDTH, layers: int = LAYERS, tokens: int = TOKENS
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.position = nn.Parameter(torch.randn(context, width) / 50)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns logits ``[rows, context, tokens]``; the embedding is also the last layer."""
        hidden = self.embedding(tokens) + self.position
        for layer in self.layers:
            hidden = layer(hidden)
        return functional.linear(self.norm(hidden), self.embedding.weight)


def next_token(logits: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Returns the mean cross entropy of the tokens that follow."""
    return functional.cross_entropy(logits.flatten(0, 1), following.flatten())


def with_adapters(model: LanguageModel) -> LanguageModel:
    """Freezes a model and adds adapters to the projections of its attention."""
    model.requires_grad_(requires_grad=False)
    for layer in model.layers:
        assert isinstance(layer, Layer)
        layer.mixed = LowRank(layer.mixed)  # type: ignore[assignment]
        layer.out = LowRank(layer.out)  # type: ignore[assignment]
    return model
