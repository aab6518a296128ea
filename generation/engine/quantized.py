"""Linear layers whose weights are stored as int8, one scale for each output: half the memory of bfloat16.

Only weights are rounded, never activations. The output head and embeddings stay as they are, since errors there
show most. Letters: N rows · I inputs · O outputs.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from generation.engine.errors import ModelRefused
from generation.engine.linear import Chosen, Measure, Ways, choose

_LARGEST = 127


def widened(layer: Any, rows: torch.Tensor) -> torch.Tensor:
    """The weight goes through the activations' dtype at every call."""
    outputs = F.linear(rows, layer.weight.to(rows.dtype)) * layer.scale
    return outputs if layer.bias is None else outputs + layer.bias


def packed(layer: Any, rows: torch.Tensor) -> torch.Tensor:
    """PyTorch's kernel that reads the int8 weight itself."""
    outputs = torch._weight_int8pack_mm(rows.contiguous(), layer.weight, layer.scale)
    return outputs if layer.bias is None else outputs + layer.bias


class Int8Linear(Chosen, nn.Module):  # type: ignore[misc]
    """x Wᵀ with W ≈ scale × int8, rounded to nearest with the largest weight of an output at ±127."""

    ways: Ways = (widened, widened, widened, widened)

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        weight = linear.weight.detach().float()
        scale = weight.abs().amax(dim=1).clamp_min(1e-12) / _LARGEST  # (O,)
        rounded = (weight / scale[:, None]).round().to(torch.int8)
        self.register_buffer("weight", rounded)  # (O, I)
        self.register_buffer("scale", scale.to(linear.weight.dtype))
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach(), requires_grad=False)


def quantize(model: Any) -> None:
    """Change a model in place. Raises ModelRefused where there is nothing to quantize."""
    before = getattr(model.config, "quantization_config", None)
    if before is not None and getattr(before, "quant_method", None) != "gguf":  # which is unpacked as it is read
        raise ModelRefused(f"{type(model).__name__} is quantized already: leave the option quantization out")
    head = model.get_output_embeddings()
    done = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child is not head:
                setattr(parent, name, Int8Linear(child))
                done += 1
    if not done:
        raise ModelRefused(f"{type(model).__name__} has no linear layers that int8 could hold")


def speed_up_quantized(model: Any, measure: Measure | None = None) -> str | None:
    """Choose each quantized layer's way on a CPU; what was found, for the log."""
    layers = [module for module in model.modules() if isinstance(module, Int8Linear)]
    if model.device.type != "cpu" or not layers:
        return None
    chosen, said = choose(layers, (widened, packed), measure)
    for layer, ways in zip(layers, chosen, strict=True):
        layer.ways = ways
    return said
