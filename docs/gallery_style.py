"""The style of the figures in tutorials and gallery: that of attsvm's own figures, larger."""

import matplotlib as mpl

from attsvm.plot import style


def apply(gallery_conf: object, file_name: str) -> None:
    """Set the style before an example is run."""
    mpl.rcdefaults()
    mpl.rcParams.update(style.RC)
    mpl.rcParams.update({"font.size": 9, "figure.dpi": 100, "savefig.facecolor": "white"})
