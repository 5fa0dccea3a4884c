"""Findings of `streamrt doctor`."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["Finding", "Status", "ok", "problem", "warning"]


class Status(str, Enum):
    """How a check ended."""

    ok = "ok"
    warning = "warning"
    problem = "problem"


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        name: what was checked.
        status: how it ended.
        detail: what was found.
        remedy: what to do; empty if nothing.
    """

    name: str
    status: Status
    detail: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str | None]:
        """Return the finding for JSON."""
        return {
            "name": self.name,
            "status": self.status.value,
            "detail": self.detail,
            "remedy": self.remedy or None,
        }


def ok(name: str, detail: str) -> Finding:
    """Return a finding that is as it should be."""
    return Finding(name, Status.ok, detail)


def warning(name: str, detail: str, remedy: str) -> Finding:
    """Return a finding that may matter."""
    return Finding(name, Status.warning, detail, remedy)


def problem(name: str, detail: str, remedy: str) -> Finding:
    """Return a finding that keeps applications from working."""
    return Finding(name, Status.problem, detail, remedy)
