"""torch.distributed.checkpoint on an outlive store: chunks, verification, commit and fencing by one object.

``dcp.save(state, storage_writer=outlive.dcp.Writer("s3://bucket/runs", run="gpt"), checkpoint_id="100")``,
``outlive.dcp.load(state, outlive.dcp.Reader("s3://bucket/runs", run="gpt"))``. See docs/DCP.md.
"""

from outlive.dcp.loading import load
from outlive.dcp.reader import Reader
from outlive.dcp.writer import Writer

__all__ = ["Reader", "Writer", "load"]
