"""Who is acting, what they may do, and the one function that says no.

A grant is `<subject>:<operation>`; `read` and `write` are only ever names of groups of operations, and `*`
stands for everything on either side. Knows nothing of users, tokens or roles: those are a plugin's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ahpd.errors import PermissionDenied

READ, WRITE = "read", "write"


@dataclass(frozen=True, slots=True)
class Subject:
    """Something grants can be held on: its operations, in the two groups `read` and `write`."""

    name: str
    title: str
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    description: str = ""
    covers: tuple[str, ...] = ()
    """Subjects whose groups are held along with this one's, as `session:write` holds `chat:write`."""

    def group_of(self, operation: str) -> str | None:
        if operation in self.read:
            return READ
        return WRITE if operation in self.write else None

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "description": self.description,
            "operations": [*self.read, *self.write],
            "read": list(self.read),
            "write": list(self.write),
        }


KERNEL_SUBJECTS = (
    Subject(
        "session",
        "Sessions",
        read=("list", "state"),
        write=(
            "create",
            "dispose",
            "rename",
            "configure",
            "folders",
            "attach",
            "mark",
            "review",
            "changes",
            "worktree",
            "artifacts",
        ),
        description="The sessions of this host.",
        covers=("chat",),
    ),
    Subject(
        "chat",
        "Chats",
        read=("turns",),
        write=(
            "create",
            "fork",
            "dispose",
            "move",
            "send",
            "cancel",
            "answer",
            "tool",
            "draft",
            "folders",
            "mark",
            "truncate",
        ),
        description="The conversations inside a session.",
    ),
    Subject(
        "config",
        "Configuration",
        read=("settings",),
        write=("change",),
        description="The settings of this host.",
    ),
)


class Subjects:
    """Every subject of a running host, kernel's and plugins', by name."""

    def __init__(self, subjects: Iterable[Subject] = KERNEL_SUBJECTS) -> None:
        self.by_name: dict[str, Subject] = {subject.name: subject for subject in subjects}
        self._covered_by: dict[str, set[str]] = {}
        for subject in self.by_name.values():
            for covered in subject.covers:
                self._covered_by.setdefault(covered, set()).add(subject.name)

    def known(self, grant: str) -> bool:
        """Whether `grant` names an operation or a group that some subject declares."""
        name, _, operation = grant.partition(":")
        subject = self.by_name.get(name)
        return subject is not None and (operation in (READ, WRITE, "*") or subject.group_of(operation) is not None)

    def wideners(self, grant: str) -> frozenset[str]:
        """Every grant that, when held, is enough to be allowed `grant`."""
        name, _, operation = grant.partition(":")
        enough = {grant, f"{name}:*", "*:*", f"*:{operation}"}
        subject = self.by_name.get(name)
        group = operation if operation in (READ, WRITE) else subject and subject.group_of(operation)
        if group:
            for holder in {name, *self._covered_by.get(name, ())}:
                enough |= {f"{holder}:{group}", f"{holder}:*"}
            enough.add(f"*:{group}")
        return frozenset(enough)

    def as_json(self) -> dict[str, Any]:
        """The value of `_meta['ahpd.grants']`."""
        return {name: subject.as_json() for name, subject in self.by_name.items()}


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is acting, resolved once per request. `id` is a typed reference such as `user:ana`."""

    id: str | None
    name: str
    grants: frozenset[str] = frozenset()
    is_root: bool = False

    @property
    def is_nobody(self) -> bool:
        return self.id is None


ROOT = Principal("root:local", "root", frozenset({"*:*"}), is_root=True)
"""The one principal there is until a user directory says who people are."""

NOBODY = Principal(None, "this turn", frozenset({"session:read"}))
"""Behind a call no person stands behind: the read half and nothing else."""


@dataclass(frozen=True, slots=True)
class Access:
    """One question: may this principal do this operation, here?"""

    principal: Principal
    grant: str
    resource: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Denial:
    """A no, with the sentence the person is told."""

    sentence: str


class Gatekeeper:
    """Answers every access question of a host. `require` is the only function that refuses."""

    def __init__(self, subjects: Subjects | None = None) -> None:
        self.subjects = subjects or Subjects()
        self._enough: dict[str, frozenset[str]] = {}

    def holds(self, principal: Principal, grant: str) -> bool:
        enough = self._enough.get(grant)
        if enough is None:
            enough = self._enough[grant] = self.subjects.wideners(grant)
        return principal.is_root or not enough.isdisjoint(principal.grants)

    def denial(self, access: Access) -> Denial | None:
        if self.holds(access.principal, access.grant):
            return None
        return Denial(f"{access.principal.name} may not {access.grant} here")

    def require(self, principal: Principal, grant: str, resource: str = "") -> None:
        """Return when allowed; raise `PermissionDenied` with the sentence when not."""
        denial = self.denial(Access(principal, grant, resource))
        if denial is not None:
            raise PermissionDenied(denial.sentence)
