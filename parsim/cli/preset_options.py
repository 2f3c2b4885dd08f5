"""The options that put a model on a card; commands that take an engine share them."""

from __future__ import annotations

from typing import Annotated

import typer

Gpu = Annotated[str | None, typer.Option("--gpu", metavar="CARD", help="Card, where --engine names a model.")]
Tp = Annotated[
    int | None, typer.Option("--tp", min=1, help="Cards that the model is split over; 1 if left out.")
]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype", help="Of the weights: as the checkpoint says, or bfloat16, fp8, int8, int4, nvfp4, mxfp4."
    ),
]
KvCacheDtype = Annotated[
    str | None, typer.Option("--kv-cache-dtype", help="Of the KV cache: 16 bits, or fp8.")
]
