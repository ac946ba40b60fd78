"""Parts shared by all families: presets, seeded weights, tokens of words, an image, and the interface of a model.

Each weight has a name, which seeds its own random numbers, so a model has the same weights in every framework, in any order of
creation.
"""

from __future__ import annotations

import hashlib
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from steelyard.errors import UsageError, unknown

PRESETS = ("tiny", "small", "full")
FORMATS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
SEED = 19
PAD, END, FIRST = 0, 1, 2
"""Special tokens."""
GAIN_SPREAD, BIAS_SPREAD, VARIANCE_SPREAD = 0.1, 0.02, 0.2
UNSCALED, QUERY_GAIN = "Attention.q.weight", 0.125
"""T5 does not scale products of queries and keys; its query weights begin smaller instead."""
KERNEL_LAST = (2, 3, 1, 0)
SIDE = 256
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Array = Any
Sizes = TypeVar("Sizes")


def chosen(models: Mapping[str, Mapping[str, Sizes]], name: str, preset: str, batch_size: int) -> Sizes:
    """The sizes of a model by its name and a preset; also checks the batch size."""
    least(batch_size, batch_size)
    if name not in models:
        raise unknown("model", name, models)
    if preset not in models[name]:
        raise unknown("preset", preset, PRESETS)
    return models[name][preset]


def least(asked: int | None, most: int) -> int:
    """The requested length, limited to that of the preset: tiny models read short texts."""
    if asked is not None and asked < 1:
        raise UsageError(f"size {asked} is less than 1", do="use a number from 1 up")
    return most if asked is None else min(asked, most)


def number_format(data_type: str) -> str:
    """The name of a number format as numpy and the frameworks have it."""
    if data_type not in FORMATS:
        raise unknown("data type", data_type, FORMATS)
    return FORMATS[data_type]


def seeded(name: str, shape: tuple[int, ...], gain: float = 1.0) -> Array:
    """A weight in float32: products keep the spread of what they multiply, gains are near 1, and biases near 0.

    `gain` is for convolutions. Without it nothing would be left of an image after many activations, and every image would get the
    same answer.
    """
    import numpy as np

    drawn = normal(name, *shape)
    if len(shape) > 1:
        factor = gain if len(shape) == 4 else QUERY_GAIN if name.endswith(UNSCALED) else 1.0
        drawn *= np.float32(math.prod(shape[1:]) ** -0.5 * factor)
        return drawn
    kind = name.rpartition(".")[2]
    if kind == "running_var":
        return np.float32(1) + np.float32(VARIANCE_SPREAD) * np.abs(drawn)
    return np.float32(1) + np.float32(GAIN_SPREAD) * drawn if kind == "weight" else np.float32(BIAS_SPREAD) * drawn


def normal(name: str, *shape: int) -> Array:
    """Normal numbers in float32 that are the same in every framework."""
    return _stream(name).normals(math.prod(shape)).reshape(shape)


def uniform(name: str, *shape: int) -> Array:
    """Numbers in [0, 1) that are the same in every framework, for a model that draws at random."""
    import numpy as np

    return _stream(name).between(0.0, 1.0, math.prod(shape)).reshape(shape).astype(np.float32)


def _stream(name: str) -> Any:
    from steelyard.backends._numbers import HostNumbers, stream_of

    return HostNumbers(stream_of(SEED, int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")))


def tokens(text: str, vocabulary: int, length: int | None, *, end: bool = True) -> list[int]:
    """A token for each word from its checksum, then the end, then padding; no list of words has to be downloaded."""
    words = re.findall(r"\w+|[^\w\s]", text.lower())
    made = [FIRST + zlib.crc32(word.encode()) % (vocabulary - FIRST) for word in words] + ([END] if end else [])
    return made if length is None else (made + [PAD] * length)[:length]


def words(rows: Array) -> list[str]:
    """The written text, with tokens in place of words, because a checksum cannot be reversed."""
    return [" ".join(f"<{int(token)}>" for token in row if token >= FIRST) for row in rows]


def token_batch(text: str, vocabulary: int, length: int | None, batch: int, *, end: bool = True) -> tuple[Array, Array]:
    """Tokens and the mask of those that are not padding, repeated for a batch."""
    import numpy as np

    row = np.asarray(tokens(text, vocabulary, length, end=end), dtype=np.int32)
    ids = np.tile(row, (batch, 1))
    return ids, (ids != PAD).astype(np.int32)


def picture() -> Array:
    """Five apples on a table, as circles on a gradient: an image without a file, of unsigned bytes."""
    import numpy as np

    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32) / SIDE
    image = np.stack([0.4 + 0.3 * y, 0.3 + 0.3 * y, 0.2 + 0.2 * x], axis=-1)
    for centre_x, centre_y in ((0.2, 0.6), (0.4, 0.7), (0.6, 0.65), (0.8, 0.6), (0.5, 0.4)):
        inside = (x - centre_x) ** 2 + (y - centre_y) ** 2 < 0.12**2
        image[inside] = (0.8, 0.1 + 0.3 * centre_x, 0.1)
    return (image * 255).astype(np.uint8)


def pixels(image: Array, side: int, batch: int, *, plain: bool = False) -> Array:
    """An image of bytes at another size, normalised as for training classifiers, repeated for a batch; channels first.

    `plain` leaves the values as they are, for a model that normalises them itself.
    """
    import numpy as np

    source = np.asarray(image)
    if source.ndim != 3 or source.shape[2] != 3:
        raise UsageError(f"the image has the shape {source.shape}, not rows, columns and 3 colours")
    rows, columns = (np.arange(side) * size // side for size in source.shape[:2])
    small = source[rows][:, columns].astype(np.float32)
    made = small if plain else (small / 255 - np.asarray(MEAN, np.float32)) / np.asarray(DEVIATION, np.float32)
    return np.tile(made.transpose(2, 0, 1)[None], (batch, 1, 1, 1))


class NamedWeights(Mapping[str, Array]):
    """Weights by name only, without a shape; kernels are in the order that images with channels last need."""

    def __init__(self, get: Callable[..., Array], shapes: Mapping[str, tuple[int, ...]], last: bool) -> None:
        self.get_weight, self.shapes, self.last = get, shapes, last

    def __getitem__(self, name: str) -> Array:
        shape = self.shapes[name]
        return self.get_weight(name, *shape, turned=KERNEL_LAST) if self.last and len(shape) == 4 else self.get_weight(name, *shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


@dataclass(frozen=True)
class Draft:
    """A model independent of a framework: its raw input, its preprocessing and its postprocessing.

    `prepare` returns numpy arrays; floating ones get the model's format. `gain` is that of its convolutions. `effective` says what is
    built, for the record.
    """

    raw: Any
    prepare: Callable[..., tuple[Array, ...]]
    effective: Mapping[str, Any]
    data_type: str = "fp32"
    gain: float = 1.0
    finish: Callable[[Any], Any] = lambda output: output


class Prepared:
    """The part of the interface that is the same in every framework."""

    draft: Draft

    def generate_default_inputs(self) -> Any:
        """The raw input, a tuple if there are several."""
        return self.draft.raw

    def preprocess(self, *raw: Any) -> Any:
        """Arrays of the framework from raw input, which may be given as one tuple: one array, or several as a tuple."""
        given = raw[0] if len(raw) == 1 and isinstance(raw[0], tuple) else raw
        made = tuple(self.array(item) for item in self.draft.prepare(*given))
        return made[0] if len(made) == 1 else made

    def postprocess(self, output: Any) -> Any:
        """The part of an answer that users look at."""
        return self.draft.finish(output)

    def array(self, value: Array) -> Array:
        """An array of the framework."""
        raise NotImplementedError

    @property
    def effective(self) -> Mapping[str, Any]:
        """Facts about the built model for a record."""
        return self.draft.effective


def choose(framework: str, forms: Mapping[str, Callable[[], Any]], family: str) -> Any:
    """The model in one of the frameworks that a family has."""
    if framework not in forms:
        raise UsageError(f"{family} is not available in {framework!r}", do=f"use {', '.join(forms)}")
    return forms[framework]()
