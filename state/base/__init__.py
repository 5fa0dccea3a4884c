"""Contracts of stores, of their transactions, and of what operators see of both."""

from streamrt.state.base.transaction import BEFORE_ALL, Change, Transaction

__all__ = ["BEFORE_ALL", "Change", "Transaction"]
