"""Headers of records that are produced."""

from streamrt.models.headers import merge_headers

__all__ = ["merge_headers"]
