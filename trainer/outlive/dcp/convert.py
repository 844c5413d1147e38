"""From torch's files to safetensors and back, for the agent, which has no torch.

A program of its own (``outlive.programs``). Nothing is executed on the way in: files of ``torch.save`` are
read with ``weights_only``, the index of a checkpoint directory by an unpickler that knows its few types.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outlive.dcp.directory import ReadOnlyTypes
from outlive.dcp.naming import chosen
from outlive.errors import ConfigError, OutliveError
from outlive.store.safetensors import DTYPES, header, is_safetensors, read_header
from outlive.train.tensors import bits, dtype_name


def main() -> int:
    """One conversion. What was left out is said as JSON on stdout, an error as one line on stderr."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["import", "export"])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--key")
    parser.add_argument("--dtype")
    parser.add_argument("--format", choices=["safetensors", "torch", "dcp"], default="safetensors")
    parser.add_argument("--nest", default="")
    args = parser.parse_args()
    try:
        dtype = dtype_of(args.dtype)
        if args.action == "import":
            found = chosen(read(args.source), args.key)
            write_safetensors(args.target, cast(found.tensors, dtype))
            print(json.dumps({"left": list(found.left), "key": found.key}))
        else:
            tensors = cast(read_safetensors(args.source), dtype)
            write(args.target, tensors, to=args.format, nest=args.nest)
            print(json.dumps({}))
    except OutliveError as error:
        print(json.dumps({"error": str(error), "hint": error.hint}))
        return 1
    return 0


def read(source: Path) -> Mapping[str, Any]:
    """The state in a directory of torch.distributed.checkpoint or of safetensors, or in a file."""
    if source.is_dir():
        if (source / ".metadata").exists():
            return read_directory(source)
        files = sorted(source.glob("*.safetensors"))
        if not files:
            raise ConfigError(
                f"{source} is neither a checkpoint of torch.distributed.checkpoint nor holds safetensors",
                hint="name the directory that has .metadata in it",
            )
        return {name: tensor for file in files for name, tensor in read_safetensors(file).items()}
    if is_safetensors(source):
        return read_safetensors(source)
    return read_torch(source)


def read_torch(source: Path) -> Mapping[str, Any]:
    """What ``torch.save`` wrote. ``ConfigError`` if that needs more than tensors and plain values."""
    try:
        found = torch.load(source, map_location="cpu", weights_only=True, mmap=_is_zip(source))
    except Exception as error:  # torch raises whatever it meets
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(
            f"{source} can't be read as tensors and plain values: {first}",
            hint="save it anew with torch.save(model.state_dict(), ...): nothing in it is executed here",
        ) from None
    if not isinstance(found, Mapping):
        raise ConfigError(f"{source} holds a {type(found).__name__}, and no state_dict()")
    return found


def read_directory(source: Path) -> Mapping[str, Any]:
    """All tensors of a checkpoint directory, by their names; other values are only named."""
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = ReadOnlyTypes(source)
    metadata = reader.read_metadata()
    state: dict[str, Any] = {
        name: torch.empty(known.size, dtype=known.properties.dtype)
        for name, known in metadata.state_dict_metadata.items()
        if isinstance(known, TensorStorageMetadata)
    }
    load(state, storage_reader=reader, no_dist=True)
    return {**state, **{name: None for name in metadata.state_dict_metadata if name not in state}}


def read_safetensors(source: Path) -> dict[str, Tensor]:
    """The tensors of one file, mapped and not read yet."""
    told = read_header(source)
    size = source.stat().st_size
    raw = torch.from_file(str(source), shared=False, size=size, dtype=torch.uint8)
    return {
        name: raw[one.offset : one.offset + one.bytes].clone().view(getattr(torch, one.dtype)).view(one.shape)
        for name, one in told.items()
    }


def write_safetensors(target: Path, tensors: Mapping[str, Tensor]) -> None:
    """One file, tensor by tensor."""
    strange = [f"{n} is of dtype {t.dtype}" for n, t in tensors.items() if dtype_name(t.dtype) not in DTYPES]
    if strange:
        raise ConfigError("\n".join([*strange[:10], "safetensors has no such type"]))
    told = {
        name: (dtype_name(tensor.dtype), tuple(tensor.shape), tensor.numel() * tensor.element_size())
        for name, tensor in tensors.items()
    }
    with target.open("wb") as file:
        file.write(header(told, metadata={"format": "pt"}))
        for tensor in tensors.values():
            file.write(bits(tensor).contiguous().reshape(-1).view(torch.uint8).numpy().data)


def write(target: Path, tensors: Mapping[str, Tensor], *, to: str, nest: str) -> None:
    """The artifact in the format that was asked for."""
    if to == "safetensors":
        write_safetensors(target, tensors)
    elif to == "torch":
        torch.save(dict(tensors), target)
    else:
        from torch.distributed.checkpoint.filesystem import FileSystemWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        state: dict[str, Any] = {nest: dict(tensors)} if nest else dict(tensors)
        save(state, storage_writer=FileSystemWriter(target), no_dist=True)


def cast(tensors: Mapping[str, Tensor], dtype: torch.dtype | None) -> dict[str, Tensor]:
    """Floats as `dtype`; what counts or says yes or no stays as it is."""
    if dtype is None:
        return dict(tensors)
    return {n: t.to(dtype) if t.is_floating_point() else t for n, t in tensors.items()}


def dtype_of(name: str | None) -> torch.dtype | None:
    if name is None:
        return None
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point or name not in DTYPES:
        floats = [known for known in DTYPES if "float" in known]
        raise ConfigError(f"--dtype {name} is no type of floats", hint=f"one of {', '.join(floats)}")
    return dtype


def _is_zip(source: Path) -> bool:
    with source.open("rb") as file:
        return file.read(2) == b"PK"
