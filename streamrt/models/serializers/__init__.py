"""Serializers: what `streamrt.serializers` has."""

from streamrt.serializers import *  # noqa: F403
