"""One budget for the decoded objects that all open stores keep in memory.

What a store keeps saves reads; it can be dropped at any time, as long as it was not changed. A resident task has all
partitions of its slot open at once, so a bound for each of them would be none for the process. The budget is shared like
this:

- A store asks before it keeps more, in steps, so that records cost nothing.
- When the budget is used up, stores that were not used for a while give back all that they can, the longest unused first.
- Then those that hold more than an equal share give back, the largest first. Nobody takes from a store below its share: where
  the partitions that take turns need more than there is, each keeps a part, instead of finding nothing left at its turn.
- Then the one that asks drops its own.

Changes that are not committed cannot be given back. They count, so others give back for them.

Budgets belong to threads: a store is used by one thread, and another one must not look into it. Processes that run tasks do
so in one thread, so there the budget of the thread is that of the process.
"""

import threading
from typing import Final, Protocol
from weakref import WeakKeyDictionary

__all__ = ["CacheBudget", "CacheUser", "cache_budget"]

# Parts of the budget: what is granted at a time, and how much more than needed is given back, since looking around costs.
_STEPS: Final = 1024
_SLACK: Final = 16
# A store is unused when all others were used so many times since, on average.
_ROUNDS: Final = 4


class CacheUser(Protocol):
    """What keeps objects in memory: the transaction of an open store partition."""

    @property
    def cache_size(self) -> int:
        """How many bytes the budget may have, as far as this user is concerned."""

    @property
    def held(self) -> int:
        """How many bytes it holds, or may hold without asking."""

    def give_back(self, size: int) -> None:
        """Drop about so many bytes of what was not changed, the oldest first."""


class CacheBudget:
    """Divides memory among the users that have entered and not left.

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
        # Weakly: who is dropped without an end holds nothing any more. With the number of its last use.
        self._users: WeakKeyDictionary[CacheUser, int] = WeakKeyDictionary()
        self._uses = 0

    def enter(self, user: CacheUser) -> None:
        """Note a user, or that it is used again."""
        self._uses += 1
        self._users[user] = self._uses

    def leave(self, user: CacheUser) -> None:
        """Forget a user."""
        self._users.pop(user, None)

    def grow(self, user: CacheUser, size: int) -> int:
        """Let a user hold more; others give back for it if they must.

        Args:
            user: who asks.
            size: how many bytes it needs now.

        Returns:
            How many bytes it may hold before it asks again. If that is less than it needs, it must drop its own.
        """
        self.enter(user)
        capacity = max(each.cache_size for each in self._users)
        share = capacity // len(self._users)
        wanted = size + capacity // _STEPS
        others = sum(each.held for each in self._users if each is not user)
        missing = others + wanted - capacity
        if missing > 0:
            others -= self._reclaim(user, missing + capacity // _SLACK, share)
        # A part of its share is left to everybody, or changes of others that cannot be given back would have it look again
        # for each object.
        return max(min(wanted, capacity - others), share // 2)

    def _reclaim(self, user: CacheUser, size: int, share: int) -> int:
        """Have others give back about so many bytes; return how many they did."""
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
