"""The inputs of a model: its own default, a file known by its hash, or seeded random numbers. Also saves inputs as files."""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import os
import re
import sys
import tarfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard import files
from steelyard.errors import Unsupported, UsageError
from steelyard.model.addresses import CACHE, DIGEST, KEPT, OFFLINE, RANDOM

if TYPE_CHECKING:
    import numpy as np

PATIENCE, LARGEST = 60.0, 2**31
MEMBER = re.compile(r"(?:.*/)?input_(\d{1,6})\.npy")
FORMATS = "formats.json"


def preprocessed(model: Any, source: str) -> tuple[Any, ...]:
    """The arguments of `forward` from the input's address; a tuple is a list of arguments, anything else is one argument."""
    import numpy as np

    if found := RANDOM.fullmatch(source):
        rng = np.random.default_rng(int(found[1]))
        own = as_tuple(model.preprocess(model.generate_default_inputs()))
        return tuple(redrawn(rng, item) for item in own)
    if not source:
        return as_tuple(model.preprocess(model.generate_default_inputs()))
    address, _, digest = source.partition(DIGEST)
    content = fetched(address, digest)
    if address.endswith((".tgz", ".tar.gz")):
        return unpacked(content, address)
    return as_tuple(model.preprocess(decoded(content, address)))


def as_tuple(value: Any) -> tuple[Any, ...]:
    """A tuple as it is, any other value as a tuple of one."""
    return value if isinstance(value, tuple) else (value,)


def redrawn(rng: np.random.Generator, value: Any) -> Any:
    """A random array of the same shape and format: whole numbers from the same range, floating ones with the same mean and spread."""
    import numpy as np

    if isinstance(value, dict):
        return {key: redrawn(rng, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(redrawn(rng, item) for item in value)
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return value
    torch = sys.modules.get("torch")
    tensor = torch is not None and isinstance(value, torch.Tensor)
    data = value.detach().cpu().float().numpy() if tensor and value.is_floating_point() else np.asarray(value.cpu() if tensor else value)
    if data.dtype == bool:
        made = rng.integers(0, 2, data.shape).astype(bool)
    elif data.dtype.kind in "iu":
        low, high = (int(data.min()), int(data.max())) if data.size else (0, 0)
        made = rng.integers(low, high, data.shape, dtype=data.dtype, endpoint=True)
    else:
        wide = data.astype(np.float64)
        made = (wide.mean() + (wide.std() or 1.0) * rng.standard_normal(data.shape)).astype(data.dtype) if data.size else data
    if torch is not None and tensor:
        return torch.from_numpy(made).to(value.dtype)
    return made


def fetched(address: str, digest: str) -> bytes:
    """The content of a file or an address; an error if its hash is another one."""
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise UsageError(f"the input {address} has no hash", do=f"append its sha256: {address}#sha256=…")
    if re.match(r"https?://", address):
        content = _downloaded(address, digest)
    else:
        path = located(address.removeprefix("file://"))
        content = files.read_whole(path, LARGEST)
    if (found := hashlib.sha256(content).hexdigest()) != digest:
        raise UsageError(f"the input {address} is not the expected file", why=f"its sha256 is {found}, not {digest}")
    return content


def located(name: str) -> Path:
    """A file by its path: as it is, or below a folder that packages are imported from."""
    path = Path(name)
    places = [path, *(Path(folder) / path for folder in sys.path if folder)] if not path.is_absolute() else [path]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise UsageError(f"there is no input file {name}", do="give its path from the folder of the definitions, or its whole path")
    return found


def picture(url: str, width: int = 224, height: int = 224) -> Any:
    """An image from an http(s) address, resized, for models that fetch their own; it is not checked, because no hash is given."""
    from PIL import Image

    if not re.match(r"https?://", url):
        raise UsageError(f"not an http address: {url!r:.200}", do="open a local file with PIL.Image.open")
    return Image.open(io.BytesIO(_read(url))).resize((width, height))


def _downloaded(address: str, digest: str) -> bytes:
    """Download once; later calls read the file saved under its hash."""
    folder = Path(os.environ.get(CACHE) or Path.home() / ".cache" / "steelyard" / "inputs")
    kept = folder / digest
    if kept.is_file():
        return files.read_whole(kept, LARGEST)
    content = _read(address)
    if hashlib.sha256(content).hexdigest() == digest:
        _written(kept, content)
    return content


def _read(address: str) -> bytes:
    if os.environ.get(OFFLINE):
        raise Unsupported(f"the input {address} is not here", why="--no-download is set", do="leave out --no-download once")
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            return bytes(answer.read(LARGEST + 1))
    except (OSError, ValueError) as error:
        raise Unsupported(f"the input {address} cannot be downloaded", why=f"{type(error).__name__}: {error}") from error


def decoded(content: bytes, address: str) -> Any:
    """Raw input, decoded by the ending of its name: text, JSON, an array, several arrays in the order of their names, or the bytes."""
    import numpy as np

    ending = address.rpartition(".")[2].lower()
    try:
        if ending == "txt":
            return content.decode("utf-8")
        if ending == "json":
            return json.loads(content)
        if ending == "npy":
            return np.load(io.BytesIO(content), allow_pickle=False)
        if ending == "npz":
            held = np.load(io.BytesIO(content), allow_pickle=False)
            return tuple(held[name] for name in sorted(held.files, key=_natural))
    except (ValueError, OSError, KeyError) as error:
        raise UsageError(f"the input {address} cannot be read", why=f"{type(error).__name__}: {error}") from error
    return content


def _natural(name: str) -> list[tuple[int, int | str]]:
    """Numbers in names count as numbers, so that input_10 comes after input_9."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d{1,18})", name)]


def unpacked(content: bytes, address: str) -> tuple[Any, ...]:
    """Preprocessed arguments from an archive of input_0.npy, input_1.npy, …, in order of their numbers, not of the archive."""
    import numpy as np

    found: dict[int, Any] = {}
    formats: dict[str, str] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for item in archive:
                read = archive.extractfile(item) if item.isfile() else None
                if read and (match := MEMBER.fullmatch(item.name)):
                    found[int(match[1])] = np.load(io.BytesIO(read.read()), allow_pickle=False)
                elif read and Path(item.name).name == FORMATS:
                    formats = json.loads(read.read())
    except (tarfile.TarError, ValueError, OSError, EOFError) as error:
        raise UsageError(f"the inputs {address} cannot be read", why=f"{type(error).__name__}: {error}") from error
    if sorted(found) != list(range(len(found))) or not found:
        raise UsageError(
            f"the inputs {address} are incomplete", why=f"the archive has input {', '.join(map(str, sorted(found))) or 'none'}"
        )
    return tuple(_in_format(found[number], formats.get(str(number), "")) for number in sorted(found))


def _in_format(data: Any, name: str) -> Any:
    """The data in a format that numpy lacks, which was written as bits."""
    if not name:
        return data
    return data.view(getattr(importlib.import_module("ml_dtypes"), name))


def keep(model: str, arrays: Sequence[tuple[str, Any]]) -> None:
    """If asked to, write the arguments of a model to its folder: an archive, with the names of formats that numpy lacks."""
    import numpy as np

    if not (place := os.environ.get(KEPT)):
        return
    formats = {str(number): "bfloat16" for number, (dtype, _) in enumerate(arrays) if dtype == "bf16"}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for number, (dtype, data) in enumerate(arrays):
            bits = (np.asarray(data, np.float32).view(np.uint32) >> 16).astype(np.uint16) if dtype == "bf16" else np.asarray(data)
            buffer = io.BytesIO()
            np.save(buffer, bits, allow_pickle=False)
            _add(archive, f"input_{number}.npy", buffer.getvalue())
        if formats:
            _add(archive, FORMATS, json.dumps(formats).encode())
    _written(Path(place) / model / "inputs_npy.tgz", made.getvalue())


def _written(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        do = "name another folder with --root-dir"
        raise UsageError(f"cannot write {path}", why=error.strerror or str(error), do=do) from error


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    item = tarfile.TarInfo(name)
    item.size = len(content)
    archive.addfile(item, io.BytesIO(content))
