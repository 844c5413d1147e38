"""As many machines as a test asks for, all taken away at its end."""

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

from e2e.rig.cloud import Cloud
from e2e.rig.datasource import Datasource
from e2e.rig.droplet import Droplet
from e2e.rig.image import Release
from e2e.rig.packages import Equipment


class Machines:
    """Each call makes a machine with a new disk, and boots it."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._made = ExitStack()

    def __call__(
        self,
        user_data: str,
        *,
        datasource: Datasource = "nocloud",
        release: Release = "bookworm",
        equipment: Sequence[Equipment] = (),
    ) -> Droplet:
        """A running machine, its cloud-init at work on `user_data`."""
        droplet = Droplet(self._cloud, user_data, datasource=datasource, release=release, equipment=equipment)
        self._made.enter_context(droplet).boot()
        return droplet

    def __enter__(self) -> "Machines":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._made.close()
