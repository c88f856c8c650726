"""Ready sweeps, one file each: a new one is one new file, here or outside the package."""

from attsvm._utils.extensions import Registry, kind_check
from attsvm.sweeps.definition import Definition

READY: Registry[Definition] = Registry(
    "sweep", group="attsvm.sweeps", package="attsvm.sweeps.ready", check=kind_check(Definition)
)
