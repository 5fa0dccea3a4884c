"""The proof of a view: its rows, compared with those of its query as a batch over the same records."""

from streamrt.sql.verify.batch_query import make_verified_view
from streamrt.sql.verify.verification import DifferingRow, InputRecord, Verification
from streamrt.sql.verify.verify import VerifiedView, verify_view

__all__ = [
    "DifferingRow",
    "InputRecord",
    "Verification",
    "VerifiedView",
    "make_verified_view",
    "verify_view",
]
