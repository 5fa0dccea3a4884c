"""Serializers, re-exported from `streamrt.serializers`."""

from streamrt.serializers import *  # noqa: F403
