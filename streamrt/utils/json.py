"""The default JSON functions."""

from streamrt.serializers.json import default_dumps as dumps
from streamrt.serializers.json import default_loads as loads

__all__ = ["dumps", "loads"]
