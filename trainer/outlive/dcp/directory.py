"""A checkpoint directory of torch.distributed.checkpoint, read without running what its index says."""

import io
import pickle
from pathlib import Path
from typing import Any, Final

from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

from outlive.errors import Damaged
from outlive.train.tensors import DTYPES

_TYPES: Final = {
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch": {"Size", "device"},
    "torch.serialization": {"_get_layout"},
    "collections": {"OrderedDict"},
    "pathlib": {"PosixPath", "PurePosixPath"},
    "pathlib._local": {"PosixPath", "PurePosixPath"},
    "builtins": {"set", "frozenset", "list", "dict", "tuple", "int", "float", "str", "bool", "bytes"},
}
"""All that an index needs: values, and none that does anything when it is made."""


class ReadOnlyTypes(FileSystemReader):
    """torch's own reader, but for its index: that is a pickle, of which only known types are let in."""

    def read_metadata(self, *args: Any, **options: Any) -> Metadata:
        raw = (Path(self.path) / ".metadata").read_bytes()
        try:
            found = _Unpickler(io.BytesIO(raw)).load()
        except Damaged:
            raise
        except Exception as error:  # a pickle that is none can raise anything
            raise Damaged(f"{self.path}/.metadata can't be read: {error}") from None
        if not isinstance(found, Metadata):
            raise Damaged(f"{self.path}/.metadata is no index of torch.distributed.checkpoint")
        found.storage_meta = getattr(found, "storage_meta", None) or StorageMeta()
        return found


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        is_dtype = module == "torch" and name in DTYPES
        if name in _TYPES.get(module, ()) or is_dtype:
            return super().find_class(module, name)
        raise Damaged(
            f"the checkpoint's index names {module}.{name}, which is not let in",
            hint="an index of torch.distributed.checkpoint needs no such thing: where is it from?",
        )
