"""One budget for the decoded objects that all open stores keep in memory.

Cached objects save reads. Unchanged ones can be dropped at any time. A resident task has all partitions of its slot
open at once, so a bound per partition would not bound the process. The budget is shared as follows:

- A store requests memory in large steps, so that there is no cost per record.
- When the budget is used up, stores that have been unused for a while release all that they can, longest unused first.
- Then stores above an equal share release memory, largest first. No store is reduced below its share: if the active
  partitions together need more than the budget, each keeps a part instead of losing everything before its next turn.
- Then the requesting store drops its own objects.

Uncommitted changes cannot be released. They count, so other stores release memory for them.

Each thread has one budget, because a store is used by one thread and no other thread may access it. A process runs its
tasks in one thread, so the budget of that thread is the budget of the process.
"""

import threading
from typing import Final, Protocol
from weakref import WeakKeyDictionary

__all__ = ["CacheBudget", "CacheUser", "cache_budget"]

# Fractions of the budget: the size of one grant, and the excess that is released at once, because a search costs time.
_STEPS: Final = 1024
_SLACK: Final = 16
# A store counts as unused after the others were used this many times on average.
_ROUNDS: Final = 4


class CacheUser(Protocol):
    """A holder of objects in memory: the transaction of an open store partition."""

    @property
    def cache_size(self) -> int:
        """Size of the whole budget in bytes, as this user configures it."""

    @property
    def held(self) -> int:
        """Bytes that it holds, or may hold without a request."""

    def give_back(self, size: int) -> None:
        """Drop about `size` bytes of unchanged objects, oldest first."""


class CacheBudget:
    """Divide memory among the users that have entered and not left.

    Example:
        >>> class Holder:
        ...     cache_size = 1_000_000
        ...     held = 0
        ...     def give_back(self, size):
        ...         self.held -= size
        >>> budget, first, second = CacheBudget(), Holder(), Holder()
        >>> for holder in (first, second):
        ...     budget.enter(holder)
        >>> first.held = budget.grow(first, 900_000)
        >>> second.held = budget.grow(second, 400_000)
        >>> first.held, first.held + second.held < 1_000_000
        (536524, True)
    """

    def __init__(self) -> None:
        # Weak keys: a user that is dropped without `leave` holds nothing any more. Values: the number of the last use.
        self._users: WeakKeyDictionary[CacheUser, int] = WeakKeyDictionary()
        self._uses = 0

    def enter(self, user: CacheUser) -> None:
        """Register a user, or note that it is used again."""
        self._uses += 1
        self._users[user] = self._uses

    def leave(self, user: CacheUser) -> None:
        """Remove a user."""
        self._users.pop(user, None)

    def grow(self, user: CacheUser, size: int) -> int:
        """Let a user hold more memory; other users release some if necessary.

        Args:
            user: the requesting user.
            size: bytes that it needs now.

        Returns:
            Bytes that it may hold before the next request. If this is less than `size`, it must drop its own objects.
        """
        self.enter(user)
        capacity = max(each.cache_size for each in self._users)
        share = capacity // len(self._users)
        wanted = size + capacity // _STEPS
        others = sum(each.held for each in self._users if each is not user)
        missing = others + wanted - capacity
        if missing > 0:
            others -= self._reclaim_bytes(user, missing + capacity // _SLACK, share)
        # Every user is granted a part of its share. Otherwise uncommitted changes of others, which cannot be released,
        # would cause a search for each object.
        return max(min(wanted, capacity - others), share // 2)

    def _reclaim_bytes(self, user: CacheUser, size: int, share: int) -> int:
        """Make other users release about `size` bytes; return the bytes that they released."""
        unused_since = self._uses - _ROUNDS * len(self._users)
        found = [(used, each) for each, used in self._users.items() if each is not user]
        unused = sorted((pair for pair in found if pair[0] < unused_since), key=lambda pair: pair[0])
        busy = sorted((pair for pair in found if pair[0] >= unused_since), key=lambda pair: -pair[1].held)
        freed = 0
        for kept, group in ((0, unused), (share, busy)):
            for _, each in group:
                before = each.held
                if freed >= size:
                    return freed
                if before > kept:
                    each.give_back(min(before - kept, size - freed))
                    freed += before - each.held
        return freed


class _Budgets(threading.local):
    """The budget of each thread."""

    def __init__(self) -> None:
        self.cache = CacheBudget()


_budgets = _Budgets()


def cache_budget() -> CacheBudget:
    """Return the budget of this thread."""
    return _budgets.cache
