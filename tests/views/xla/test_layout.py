"""Our declarations of XLA's interface agree with the header that the installed JAX brings."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

jax = pytest.importorskip("jax")

ROOT = Path(__file__).parents[3]
OURS = ROOT / "cpp" / "bindings" / "xla" / "ffi.h"

# (our structure, theirs, {our field: theirs})
HEAD = {"size": "struct_size", "extensions": "extension_start"}
STRUCTURES = [
    ("Extension", "XLA_FFI_Extension_Base", {"size": "struct_size", "type": "type", "next": "next"}),
    ("ApiVersion", "XLA_FFI_Api_Version", {**HEAD, "major": "major_version", "minor": "minor_version"}),
    ("Array", "XLA_FFI_Buffer", {**HEAD, "type": "dtype", "data": "data", "rank": "rank", "extents": "dims"}),
    ("Arrays", "XLA_FFI_Args", {**HEAD, "count": "size", "kinds": "types", "values": "args"}),
    ("Arrays", "XLA_FFI_Rets", {**HEAD, "count": "size", "kinds": "types", "values": "rets"}),
    ("Attributes", "XLA_FFI_Attrs", {**HEAD, "count": "size", "kinds": "types", "names": "names", "values": "attrs"}),
    (
        "CallFrame",
        "XLA_FFI_CallFrame",
        {
            **HEAD,
            **{key: key for key in ("api", "stage", "future")},
            **{"context": "ctx", "arguments": "args", "results": "rets", "attributes": "attrs"},
        },
    ),
    ("ErrorOrder", "XLA_FFI_Error_Create_Args", {**HEAD, "message": "message", "code": "errc"}),
    ("Api", "XLA_FFI_Api", {**HEAD, "version": "api_version", "create_error": "XLA_FFI_Error_Create"}),
    ("Metadata", "XLA_FFI_Metadata", {"size": "struct_size", "version": "api_version", "traits": "traits"}),
    ("MetadataExtension", "XLA_FFI_Metadata_Extension", {"base": "extension_base", "metadata": "metadata"}),
]
# What ends where the header's own ends: others may have got more fields since.
WHOLE = ("Extension", "ApiVersion", "Array", "Arrays", "Attributes", "ErrorOrder", "MetadataExtension")
NUMBERS = {
    "kMajorVersion": "XLA_FFI_API_MAJOR",
    "kMetadataExtension": "XLA_FFI_Extension_Metadata",
    "kArrayKind": "XLA_FFI_ArgType_BUFFER",
    "kInternal": "XLA_FFI_Error_Code_INTERNAL",
    "static_cast<int>(Stage::kInstantiate)": "XLA_FFI_ExecutionStage_INSTANTIATE",
    "static_cast<int>(Stage::kExecute)": "XLA_FFI_ExecutionStage_EXECUTE",
    "static_cast<int>(Type::kPred)": "XLA_FFI_DataType_PRED",
    **{
        f"static_cast<int>(Type::k{kind}{bits})": f"XLA_FFI_DataType_{kind}{bits}"
        for kind, sizes in (("S", (8, 16, 32, 64)), ("U", (8, 16, 32, 64)), ("F", (16, 32, 64)))
        for bits in sizes
    },
}


def compiled(tmp_path: Path, checks: list[str]) -> subprocess.CompletedProcess[str]:
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler here")
    if not OURS.exists():
        pytest.skip("an installed package, without its sources")
    source = tmp_path / "layout.cpp"
    lines = ['#include "bindings/xla/ffi.h"', '#include "xla/ffi/api/c_api.h"', "using namespace stepmill::xla;"]
    source.write_text("\n".join([*lines, *(f"static_assert({one});" for one in checks)]) + "\n")
    folders = [f"-I{ROOT / 'cpp'}", f"-I{jax.ffi.include_dir()}"]
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wno-invalid-offsetof", *folders, str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_sizes_offsets_and_numbers(tmp_path: Path) -> None:
    checks = [
        f"offsetof({ours}, {field}) == offsetof({theirs}, {other}) && "
        f"sizeof({ours}::{field}) == sizeof({theirs}::{other})"
        for ours, theirs, fields in STRUCTURES
        for field, other in fields.items()
        if (ours, field) not in (("Metadata", "traits"), ("MetadataExtension", "base"))
    ]
    checks += [f"sizeof({ours}) == sizeof({theirs})" for ours, theirs, _ in STRUCTURES if ours in WHOLE]
    checks += [f"{ours} == static_cast<int>({theirs})" for ours, theirs in NUMBERS.items()]
    done = compiled(tmp_path, checks)
    assert done.returncode == 0, done.stderr


def test_a_wrong_offset_would_be_found(tmp_path: Path) -> None:
    assert compiled(tmp_path, ["offsetof(Array, data) == offsetof(XLA_FFI_Buffer, rank)"]).returncode != 0
