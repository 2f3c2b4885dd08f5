"""What a comparison of objectives consists of: data sets, variants, seeds; as a YAML file."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from parsim.errors import UserError, first_problem, nearest
from parsim.predictor.ranker.recipe import Recipe
from parsim.settings_file import read_settings

BASELINES = ("prompt length", "TF-IDF + ridge")
"""Methods that every table has beside the variants."""


def _distinct(values: list[Any]) -> list[Any]:
    twice = next((value for place, value in enumerate(values) if value in values[:place]), None)
    if twice is not None:
        raise ValueError(f"{twice!r} is there twice")
    return values


Values = Annotated[list[Any], Field(min_length=1), AfterValidator(_distinct)]
Seeds = Annotated[list[Annotated[int, Field(ge=0, lt=2**32)]], Field(min_length=1), AfterValidator(_distinct)]
Name = Annotated[str, Field(pattern=r"^[^|\n]+$")]
Limit = Annotated[int, Field(ge=2)]

Grid = dict[str, Values]
"""Fields of the recipe with the values to try. Every combination is trained once with a seed of its own, and the one
that ranks the validation prompts best is taken: the held-out prompts have no say in it."""


class Variant(BaseModel):
    """One way to train: a name and what differs from the comparison's recipe.

    `also_train_on` names models of the same corpus (`all`: all of them) whose lengths are averaged into the training
    label; `seeds` and `tune` override those of the data set.
    """

    model_config = ConfigDict(extra="forbid")

    name: Name
    recipe: dict[str, Any] = Field(default_factory=dict)
    also_train_on: list[str] = Field(default_factory=list)
    seeds: Seeds | None = None
    tune: Grid | None = None


class DataSet(BaseModel):
    """One corpus and what to do with it.

    Attributes:
        name: as the table calls it.
        file: JSONL or Parquet, relative to the spec's folder or the one named with --data; with `corpus` also `hub`.
        corpus: the public corpus that the file is, whose lengths are counted in `unit`: see `predictor.corpora.data`.
        train_on: model whose lengths are learned (several are averaged).
        test_on: models whose lengths the held-out prompts are judged by; by default `train_on`.
        test_file: prompts of another file, in none of `file`, that are held out as well: `test_on` names its models.
        ceiling: models that are repeated samples of one another (one model at several temperatures), or none.
        only_dataset: keep prompts of that data set within the file only.
        limit: train on at most so many prompts (the first ones of the shuffled split).
        recipe: overrides the comparison's: a small corpus needs small batches and more passes.
        seeds: overrides the comparison's.
        tune: overrides the comparison's.
        tune_limit: tune on at most so many prompts; by default on as many as are trained on.
        variants: names of the variants to run here; all by default.
    """

    model_config = ConfigDict(extra="forbid")

    name: Name
    file: Name
    corpus: str | None = None
    unit: str | None = None
    train_on: list[str] = Field(default_factory=list)
    test_on: list[str] = Field(default_factory=list)
    test_file: str | None = None
    ceiling: list[str] = Field(default_factory=list)
    only_dataset: str | None = None
    test_share: float = Field(default=0.1, gt=0, lt=1)
    limit: Limit | None = None
    recipe: dict[str, Any] = Field(default_factory=dict)
    seeds: Seeds | None = None
    tune: Grid | None = None
    tune_limit: Limit | None = None
    variants: Annotated[list[str], Field(min_length=1)] | None = None


class Comparison(BaseModel):
    """A comparison: what `parsim compare SPEC.yaml` reads."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(default="compare", pattern=r"^[^./][^/]*$")
    seeds: Seeds = Field(default_factory=lambda: [1, 2, 3])
    recipe: Recipe = Recipe()
    tune: Grid = Field(default_factory=dict)
    variants: list[Variant] = Field(
        default_factory=lambda: [
            Variant(name=objective, recipe={"objective": objective})
            for objective in ("pairwise", "pointwise", "listwise")
        ],
        min_length=1,
    )
    datasets: list[DataSet] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_tell_apart(self) -> Comparison:
        """The table's rows go by the names of variants, its parts by those of data sets."""
        names = [variant.name for variant in self.variants]
        for what, several in (
            ("variant", [*BASELINES, *names]),
            ("data set", [one.name for one in self.datasets]),
        ):
            twice = next((name for place, name in enumerate(several) if name in several[:place]), None)
            if twice is not None:
                raise ValueError(f"two {what}s are called {twice!r}; give one another name")
        for spec in self.datasets:
            unknown = next((name for name in spec.variants or [] if name not in names), None)
            if unknown is not None:
                hint = nearest(unknown, names)
                raise ValueError(
                    f"data set {spec.name}: no variant {unknown!r}{hint} (there are {', '.join(names)})"
                )
        return self

    @model_validator(mode="after")
    def _recipes_are_right(self) -> Comparison:
        """A wrong field of a recipe is found before the first training, not after hours."""
        for where, fields, grid in [
            ("tune", {}, self.tune),
            *((one.name, one.recipe, one.tune) for one in self.variants),
            *((one.name, one.recipe, one.tune) for one in self.datasets),
        ]:
            if "seed" in {*fields, *(grid or {})}:
                raise ValueError(f"{where}: the seed is no choice of a recipe; name seeds: [1, 2, ...]")
        for spec in self.datasets:
            for variant in self.variants_of(spec):
                for choice in self.choices(spec, variant) or [{}]:
                    self._check(spec, variant, choice)
        return self

    def variants_of(self, spec: DataSet) -> list[Variant]:
        """Those that are run on a data set."""
        return [one for one in self.variants if spec.variants is None or one.name in spec.variants]

    def choices(self, spec: DataSet, variant: Variant) -> list[dict[str, Any]]:
        """The combinations of the grid that holds here; none where nothing is tuned."""
        grid = next(one for one in (variant.tune, spec.tune, self.tune) if one is not None)
        return (
            [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
            if grid
            else []
        )

    def recipe_of(self, spec: DataSet, variant: Variant, choice: Mapping[str, Any]) -> Recipe:
        """The comparison's recipe, overridden by the data set's, by the variant's and by a choice."""
        return Recipe.model_validate({**self.recipe.model_dump(), **spec.recipe, **variant.recipe, **choice})

    def _check(self, spec: DataSet, variant: Variant, choice: dict[str, Any]) -> None:
        try:
            self.recipe_of(spec, variant, choice)
        except ValidationError as error:
            field = ".".join(str(part) for part in error.errors()[0]["loc"])
            grids = {variant.name: variant.tune, spec.name: spec.tune, "tune": self.tune}
            tuned = next(name for name, grid in grids.items() if grid is not None)
            parts = [(tuned, choice), (variant.name, variant.recipe), (spec.name, spec.recipe)]
            where = next((name for name, fields in parts if field in fields), variant.name)
            hint = (
                nearest(field, list(Recipe.model_fields)) if field not in {*Recipe.model_fields, ""} else ""
            )
            raise ValueError(f"{where}: recipe field {first_problem(error)}{hint}") from None


ABLATIONS = (
    Variant(name="pairwise, no delta filter", recipe={"objective": "pairwise", "delta": 0.0}),
    Variant(name="pairwise, 256 tokens", recipe={"objective": "pairwise", "max_length": 256}),
    Variant(name="pairwise, 512 tokens", recipe={"objective": "pairwise", "max_length": 512}),
    Variant(
        name="pairwise, frozen encoder", recipe={"objective": "pairwise", "tuning": "frozen", "epochs": 30}
    ),
    Variant(name="pairwise, bert-base", recipe={"objective": "pairwise", "encoder": "bert-base-uncased"}),
)
"""What `compare --ablate` adds."""


def shipped_spec(name: str) -> Path | None:
    """The spec of that name that comes with the package, or None."""
    file = Path(__file__).parent / f"{name}.yaml"
    return file if file.is_file() else None


def shipped_specs() -> list[str]:
    """Names that `shipped_spec` knows."""
    return sorted(file.stem for file in Path(__file__).parent.glob("*.yaml"))


def read_comparison(path: Path) -> Comparison:
    """A comparison from a YAML spec.

    Raises:
        UserError: no such file, no YAML, or an unknown or wrong field, of a recipe too.
    """
    fields = read_settings(path, "comparison")
    try:
        return Comparison.model_validate(fields)
    except ValidationError as error:
        raise UserError(f"{path}: {first_problem(error)}") from error
