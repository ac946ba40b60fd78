"""What the file of an exported program shows without a compiler: its kind, its signature, and whether it would call the host.

Only the standard library is used: planning a run needs this module, and so do workers of every stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from steelyard import files
from steelyard.artifacts import bytecode, tflite
from steelyard.artifacts.signature import ProgramSignature, hlo_signature, signature_in
from steelyard.errors import SteelyardError, Unsupported, UsageError

PROGRAM = 8 * 2**30
"""The largest program that is read, in bytes."""
SUFFIXES = (".mlir", ".mlirbc", ".mlir.bc", ".bc", ".hlo", ".txt", ".tflite", ".onnx", ".vhlo", ".stablehlo", ".tgz")
HEAD = 2**16
BYTECODE, FLATBUFFER = bytecode.MAGIC, b"TFL3"
DIALECTS = {"vhlo": "stablehlo_mlir", "stablehlo": "stablehlo_mlir", "chlo": "stablehlo_mlir", "tosa": "tosa_mlir", "linalg": "linalg_mlir"}
"""The kind of a program of MLIR by the dialects in it; the first one found counts."""
KNOWN_CALLS = (
    "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint", "annotate_device_placement", "TopK", "ApproxTopK",
    "PartialReduce", "AllocateBuffer", "Qr", "Eigh", "ProductOfElementaryHouseholderReflectors", "xla.sdy.", "lapack_", "blas_",
    "mhlo.", "chlo.", "stablehlo.", "ducc_fft", "dynamic_ducc_fft", "__onednn$", "__cublas$", "__cudnn$", "cublas_", "cudnn_",
    "cusolver_", "cu_threefry2x32", "cu_lu_pivots_to_permutation", "cusparse_gtsv2", "hipsolver_", "hip_threefry2x32",
    "hip_lu_pivots_to_permutation", "LuDecomposition", "shape_assertion",
)  # fmt: skip
"""How the names of custom calls begin that only compute; every other custom call may do anything on the host."""
TRANSFERS = ("infeed", "outfeed", "send", "recv")
COMPUTING = (
    "builtin.module.", "func.func.", "func.call.", "func.return.", "stablehlo.", "vhlo.", "chlo.", "tosa.", "linalg.", "tensor.", "arith.",
    "math.", "complex.", "scf.", "cf.", "affine.", "index.", "shape.", "ml_program.", "quant.", "tm_tensor.",
)  # fmt: skip
"""How the names of operations begin that only compute; with any other operation a program may contain machine code or name files."""
OUTSIDE = ("tosa.custom", "ml_program.extern")
"""Operations of those dialects that the host must provide: custom operations, and values from outside the program."""
SAID = ("mhlo.", "jax.", "tf.", "tf_saved_model.", "tfl.", "xla.", "torch.", "iree.abi.output.")
"""How the names of attributes begin that exporters add to operations."""
_CALLS = re.compile(
    r'custom_call\s*@(?:"([^"]*)"|([\w.$-]+))|call_target_name(?:_v1)?\s*=\s*(?:#vhlo\.string_v1<)?"([^"]*)"|custom_call_target="([^"]*)"'
)
_TRANSFER = re.compile(r"\b(?:stablehlo|vhlo|mhlo)\.(infeed|outfeed|send|recv)(?:_v\d+)?\b|[\])}] (infeed|outfeed|send|recv)\(")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_RESOURCE = re.compile(r'(?<=dense_resource<)[\w.$-]+(?=>)|^\s*[\w.$-]+(?=: "")', re.MULTILINE)
_OPERATION = re.compile(r'"([^"\s]+)"\(')
_NAMED = re.compile(r"(?<![\w$.@%^])(?:[#!]([A-Za-z_][\w$]*)[.<]([\w$.]*)|([A-Za-z_][\w$]*)\.([\w$.]+))")
_DECLARED = re.compile(r'"(?:(?:func|ml_program)\.func|vhlo\.func_v\d+)"\(\) <\{([^\n]*)\}> \(\{\s*\}\)')
_SYMBOL = re.compile(r'sym_name = (?:#vhlo\.string_v1<)?"([^"]*)"')
_ELIDED = re.compile(r"dense_resource<__elided__>|dense<__elided__>|\bconstant\(\{\.\.\.\}\)")


def read(path: Path) -> bytes:
    """The bytes of a program's file."""
    try:
        return files.read_whole(path, PROGRAM)
    except OSError as error:
        raise files.unreadable(path, error) from None


def kind_of(path: Path) -> tuple[str, str] | None:
    """The kind and the form of a program; None for a file that is not a program.

    A file with a suffix that only programs have counts as one, so that a damaged one is reported and not skipped.
    """
    try:
        with files.open_plain(path) as file:
            head = file.read(HEAD)
            whole = head if len(head) < HEAD or not head.startswith(BYTECODE) else head + file.read()
    except OSError as error:
        raise files.unreadable(path, error) from None
    if head[4:8] == FLATBUFFER or path.suffix == ".tflite":
        return "tflite_fp32", "flatbuffer"
    if head.startswith(BYTECODE):
        return _bytecode_kind(whole)
    if path.suffix == ".onnx":
        return "onnx", "protobuf"
    if head.startswith(b"HloModule") or b"\nHloModule" in head:
        return "xla_hlo_dump", "text"
    return _text_kind(path, head.decode("utf-8", "replace")) if b"\0" not in head else None


def _bytecode_kind(content: bytes) -> tuple[str, str]:
    """Kind and form by the names of its dialects; without any it counts as StableHLO, so that a compiler reports what is wrong."""
    names = bytecode.names(content)
    for dialect, kind in DIALECTS.items():
        if dialect.encode() in names:
            return kind, "vhlo" if dialect == "vhlo" else "bytecode"
    return "stablehlo_mlir", "bytecode"


def _text_kind(path: Path, head: str) -> tuple[str, str] | None:
    if not re.search(r"^\s*(module\b|func\.func\b|#\w+ =|\"builtin\.module\")", head, re.MULTILINE):
        return None
    for text in (head, ""):
        text = text or read(path).decode("utf-8", "replace")
        found = [kind for dialect, kind in DIALECTS.items() if re.search(rf"\b{dialect}\.\w", text)]
        if found:
            return found[0], "text"
    return "stablehlo_mlir", "text"


def host_calls(text: str) -> list[str]:
    """Names of what a program of StableHLO or HLO needs from the host: custom calls that may do more than compute, and transfers."""
    called = [next(name for name in found.groups() if name is not None) for found in _CALLS.finditer(text)]
    moved = [next(filter(None, found.groups())) for found in _TRANSFER.finditer(text)]
    strange = [name for name in called if not name.startswith(KNOWN_CALLS)]
    return list(dict.fromkeys([*strange, *moved]))


def strange_names(shown: str) -> list[str]:
    """Names of what may do more than compute in a program that MLIR printed in its generic form.

    An unknown dialect is named without its operations. A function without a body would be one of the host's.
    """
    bare = _RESOURCE.sub("", _STRING.sub('""', shown))
    said = [".".join(filter(None, found.groups())) for found in _NAMED.finditer(bare)]
    strange = [name for name in _OPERATION.findall(shown) if name in OUTSIDE or not f"{name}.".startswith(COMPUTING)]
    strange += [name for name in said if name in OUTSIDE or not f"{name}.".startswith((*COMPUTING, *SAID))]
    known = {name.partition(".")[0] for name in COMPUTING}
    told = [name if (dialect := name.partition(".")[0]) in known else dialect for name in strange]
    declared = [name for found in _DECLARED.finditer(shown) for name in _SYMBOL.findall(found[1]) or ["a function without a name"]]
    return list(dict.fromkeys([*told, *declared]))


def refuse(names: Iterable[str], allowed: Iterable[str], what: str) -> None:
    """Raise if a program may do more than compute, unless every name was allowed."""
    strange = [name for name in dict.fromkeys(names) if name not in set(allowed)]
    if strange:
        allow = " ".join(f"--allow {name}" for name in strange)
        raise Unsupported(f"it {what} {', '.join(strange)}", why="that may do more than compute", do=f"if you trust it: {allow}")


def refuse_elided(text: str) -> None:
    """Raise for a program whose weights were left out when it was printed; it would run with zeros in their place."""
    if _ELIDED.search(text):
        why = "large constants were left out when it was printed"
        raise SteelyardError("its weights are missing", why=why, do="export it again with all constants, as steelyard artifacts make does")


def with_constants(text: str) -> str:
    """Text with each resource written where it is used: XLA cannot read `dense_resource`, as which torch-mlir writes weights."""
    start = text.rfind("{-#")
    if start < 0 or "dense_resource<" not in text:
        return text
    blobs = dict(_resources(text[start:]))
    body = text[:start]

    def put(found: re.Match[str]) -> str:
        name = found[1].strip('"')
        if name not in blobs:
            raise SteelyardError(f"its resource {name[:60]} is missing", why="the program names it but does not contain it")
        return f'dense<"0x{blobs[name][8:]}">'

    return re.sub(r'dense_resource<("[^"]*"|[\w.$-]+)>', put, body)


def _resources(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and hexadecimal digits of resources; the first four bytes are their alignment."""
    for found in re.finditer(r'(?:"([^"]*)"|([\w.$-]+))\s*:\s*"0x([0-9A-Fa-f]*)"', text):
        yield found[1] or found[2], found[3]


def signature_of(path: Path, kind: str, form: str, entry: str = "main") -> ProgramSignature | None:
    """The signature if the file shows it without a compiler (text and TFLite); an error for a damaged TFLite program
    names the file."""
    try:
        if kind.startswith("tflite"):
            return _of_tflite(path)
        if form != "text":
            return None
        text = read(path).decode("utf-8", "replace")
        return hlo_signature(text) if kind == "xla_hlo_dump" else signature_in(text, entry)
    except Unsupported:
        return None


def _of_tflite(path: Path) -> ProgramSignature:
    try:
        return tflite.signature(read(path))
    except UsageError as error:
        raise UsageError(error.what, why=error.why, do=error.do, where=str(path)) from error
