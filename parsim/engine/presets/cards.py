"""Cards as numbers, from memory of their makers' datasheets; not re-checked against them."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2.0**30
TERA = 1e12


@dataclass(frozen=True)
class Card:
    """One card.

    Attributes:
        memory: bytes that the driver reports.
        bandwidth: of the memory, in bytes/s.
        flops: dense bfloat16 tensor FLOP/s with 32-bit accumulation.
        fp8_flops: dense 8-bit tensor FLOP/s; 0 if the card has none.
        link: what joins the cards of one server: `NVLink`, `PCIe` or `xGMI`.
        link_bandwidth: of one card to the others, in bytes/s and one direction.
        generation: what vLLM tells cards apart by: ampere, ada, hopper, blackwell, cdna3.
        source: the datasheet.
    """

    memory: float
    bandwidth: float
    flops: float
    fp8_flops: float
    link: str
    link_bandwidth: float
    generation: str
    source: str


_PCIE_4, _PCIE_5 = 32e9, 64e9


def _card(
    gib: float,
    bandwidth: float,
    flops: float,
    fp8: float,
    link: str,
    link_bandwidth: float,
    generation: str,
    source: str,
) -> Card:
    return Card(
        gib * GIB, bandwidth * 1e9, flops * TERA, fp8 * TERA, link, link_bandwidth, generation, source
    )


CARDS: dict[str, Card] = {
    "l4": _card(22.0, 300, 121, 242, "PCIe", _PCIE_4, "ada", "NVIDIA L4 datasheet"),
    "a10": _card(22.5, 600, 125, 0, "PCIe", _PCIE_4, "ampere", "NVIDIA A10 datasheet"),
    "a6000": _card(47.5, 768, 154.8, 0, "PCIe", _PCIE_4, "ampere", "NVIDIA RTX A6000 datasheet"),
    "rtx-4090": _card(
        25_250_627_584 / GIB,
        1008,
        165.2,
        330.3,
        "PCIe",
        _PCIE_4,
        "ada",
        "NVIDIA Ada GPU architecture whitepaper",
    ),
    "rtx-5090": _card(
        31.4,
        1792,
        209.5,
        419,
        "PCIe",
        _PCIE_5,
        "blackwell-rtx",
        "NVIDIA RTX Blackwell GPU architecture whitepaper",
    ),
    "rtx-pro-6000": _card(
        94.9, 1792, 503.8, 1007.6, "PCIe", _PCIE_5, "blackwell-rtx", "NVIDIA RTX PRO 6000 Blackwell datasheet"
    ),
    "l40s": _card(44.4, 864, 362, 733, "PCIe", _PCIE_4, "ada", "NVIDIA L40S datasheet"),
    "a100-40g": _card(39.4, 1555, 312, 0, "NVLink", 300e9, "ampere", "NVIDIA A100 datasheet"),
    "a100-80g": _card(79.2, 2039, 312, 0, "NVLink", 300e9, "ampere", "NVIDIA A100 datasheet"),
    "h20": _card(95.1, 4000, 148, 296, "NVLink", 450e9, "hopper", "NVIDIA H20 product brief"),
    "h100-pcie": _card(79.2, 2039, 756, 1513, "PCIe", _PCIE_5, "hopper", "NVIDIA H100 datasheet (PCIe)"),
    "h100-nvl": _card(93.1, 3938, 835, 1671, "PCIe", _PCIE_5, "hopper", "NVIDIA H100 NVL datasheet"),
    "h100": _card(79.2, 3352, 989, 1979, "NVLink", 450e9, "hopper", "NVIDIA H100 datasheet (SXM)"),
    "h200": _card(139.8, 4800, 989, 1979, "NVLink", 450e9, "hopper", "NVIDIA H200 datasheet (SXM)"),
    "b200": _card(
        178.4, 8000, 2250, 4500, "NVLink", 900e9, "blackwell", "NVIDIA DGX B200 datasheet, an eighth"
    ),
    "gb200": _card(
        184.0, 8000, 2500, 5000, "NVLink", 900e9, "blackwell", "NVIDIA GB200 NVL72 datasheet, a 72nd"
    ),
    "mi300x": _card(191.7, 5300, 1307.4, 2614.9, "xGMI", 448e9, "cdna3", "AMD Instinct MI300X datasheet"),
    "mi325x": _card(255.7, 6000, 1307.4, 2614.9, "xGMI", 448e9, "cdna3", "AMD Instinct MI325X datasheet"),
}
"""By the name that `--gpu` takes. Where a datasheet gives tensor rates with sparsity, half of them.

Memory: as reported by a card for the RTX 4090 (its recording) and the B200 (vllm#21489: 178.36 GiB); else
the nominal size less what drivers keep for themselves, within 2%. H100 PCIe and NVL: bridges join two cards only, so
PCIe is taken."""
