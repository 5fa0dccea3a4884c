"""Aggregations of windows, under the path of Quix Streams."""

from streamrt.windows.aggregators import *  # noqa: F403
from streamrt.windows.aggregators import __all__ as __all__
