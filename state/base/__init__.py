"""The common base of transactions, and contracts of stores and of the state interface for operators."""

from streamrt.state.base.transaction import BEFORE_ALL, Change, Transaction

__all__ = ["BEFORE_ALL", "Change", "Transaction"]
