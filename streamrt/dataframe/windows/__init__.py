"""Aggregations of windows, under the path of Quix Streams: the names of `streamrt.windows`."""

from streamrt.windows.aggregators import *  # noqa: F403
from streamrt.windows.aggregators import __all__ as __all__
