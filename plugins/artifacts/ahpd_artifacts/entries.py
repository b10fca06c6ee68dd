"""Entries of the record: reading a model's, reading stored ones, and putting the two together. Pure.

An entry is an artifact, which the session delivers, or a reference, which somebody will want to look at. Two are
the same thing when they name the same place, whatever they are called. Implements the artifact tools of the
product's "The host's own tools".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from ahpd import ToolError

TYPES = ("pullRequest", "issue", "commit", "website", "file", "resource")

_NEEDS: Mapping[str, Sequence[str]] = {
    "pullRequest": ("link",),
    "issue": ("link",),
    "commit": ("link", "commitHash"),
    "website": ("link",),
    "file": ("uri",),
    "resource": ("uri",),
}
_ON_A_FORGE = ("pullRequest", "issue")
_OPEN_LINK = "agent-host-session"
# Two letters at least: a scheme of one is the drive of a Windows path.
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):\S.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Entry:
    """One artifact or reference. `id` is empty until it is recorded."""

    id: str
    type: str
    label: str
    is_artifact: bool
    link: str | None = None
    uri: str | None = None
    commit: str | None = None
    is_github: bool | None = None

    @property
    def place(self) -> str | None:
        """What it is found by, and told from others by."""
        return self.link or self.uri or self.commit

    @property
    def kind(self) -> str:
        return "artifact" if self.is_artifact else "reference"

    def is_same(self, other: Entry) -> bool:
        own, its = self.place, other.place
        return own is not None and its is not None and own.strip().lower() == its.strip().lower()

    def as_json(self) -> dict[str, Any]:
        """As it is stored, for clients to read."""
        kept = {
            "id": self.id,
            "type": self.type,
            "label": self.label,
            "isArtifact": self.is_artifact,
            "link": self.link,
            "uri": self.uri,
            "commitHash": self.commit,
            "isGitHub": self.is_github,
        }
        return {key: value for key, value in kept.items() if value is not None}


def stored(value: Any) -> list[Entry]:
    """The entries of a stored list; whatever is no entry is skipped."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    return [entry for each in value if (entry := _stored_one(each)) is not None]


def _stored_one(value: Any) -> Entry | None:
    if not isinstance(value, Mapping):
        return None
    texts = [value.get(key) for key in ("id", "type", "label")]
    optional = [value.get(key) for key in ("link", "uri", "commitHash")]
    is_artifact, is_github = value.get("isArtifact", True), value.get("isGitHub")
    fits = (
        all(isinstance(text, str) and text for text in texts)
        and value["type"] in TYPES
        and all(text is None or isinstance(text, str) for text in optional)
        and isinstance(is_artifact, bool)
    )
    if not fits:
        return None
    link, uri, commit = optional
    known = is_github if isinstance(is_github, bool) else None
    return Entry(value["id"], value["type"], value["label"], is_artifact, link, uri, commit, known)


def read(tool: str, arguments: Any) -> list[Entry]:
    """What a call wants recorded: the batch under `items`, or itself where it is one entry. One wrong entry
    refuses them all."""
    reader = _Reader(tool)
    if not isinstance(arguments, Mapping):
        raise reader.refusal("expected an object.")
    if "items" not in arguments and {"type", "label", "isArtifact"} & set(arguments):
        return [reader.entry(arguments, "")]
    items = arguments.get("items")
    if not isinstance(items, list) or not items:
        raise reader.refusal("items must be a non-empty array.")
    return [reader.item(item, f"items[{index}]") for index, item in enumerate(items)]


class _Reader:
    """Reads entries, and words what is wrong with one."""

    def __init__(self, tool: str) -> None:
        self._tool = tool

    def refusal(self, rule: str) -> ToolError:
        return ToolError(f"Invalid {self._tool} input: {rule}")

    def item(self, item: Any, where: str) -> Entry:
        if not isinstance(item, Mapping):
            raise self.refusal(f"{where} must be an object.")
        return self.entry(item, f"{where}.")

    def entry(self, given: Mapping[str, Any], prefix: str) -> Entry:
        kind = given.get("type")
        if kind not in TYPES:
            raise self.refusal(f"{prefix}type must be one of {', '.join(TYPES)}.")
        is_artifact = given.get("isArtifact")
        if not isinstance(is_artifact, bool):
            rule = "isArtifact must be a boolean — true for an artifact, false for a reference."
            raise self.refusal(prefix + rule)
        label = self.text(given, "label", prefix)
        found = {name: self.text(given, name, prefix) for name in _NEEDS[kind]}
        link, uri = found.get("link"), found.get("uri")
        if link is not None:
            self.check_link(link, prefix)
        if uri is not None:
            self.check_uri(uri, prefix)
        is_github = _is_github(link) if link is not None and kind in _ON_A_FORGE else None
        return Entry("", kind, label, is_artifact, link, uri, found.get("commitHash"), is_github)

    def text(self, given: Mapping[str, Any], name: str, prefix: str) -> str:
        text = given.get(name)
        if not isinstance(text, str) or not text.strip():
            raise self.refusal(f"{prefix}{name} must be a non-empty string.")
        return text.strip()

    def check_link(self, link: str, prefix: str) -> None:
        scheme, host = _scheme_and_host(link)
        if scheme and scheme not in ("http", "https"):
            raise self.refusal(f"{prefix}link must be an http(s) URL, but was '{scheme}:'.")
        if not scheme or not host:
            raise self.refusal(f"{prefix}link must be an absolute http(s) URL.")

    def check_uri(self, uri: str, prefix: str) -> None:
        found = _URI.fullmatch(uri)
        if found is None:
            raise self.refusal(
                f"{prefix}uri must be an absolute URI including its scheme, such as 'file:///path/to/file' — "
                "not a plain file system path."
            )
        if found[1].lower() == _OPEN_LINK:
            raise self.refusal(
                "sessions and chats created with session-management tools must not be recorded as artifacts or "
                "references."
            )


def _scheme_and_host(link: str) -> tuple[str, str]:
    try:
        parts = urlsplit(link)
        return parts.scheme.lower(), parts.hostname or ""
    except ValueError:
        return "", ""


def _is_github(link: str) -> bool:
    """Whether a link is to github.com, or to a GitHub server of somebody's own."""
    _, host = _scheme_and_host(link)
    return host == "github.com" or host.endswith(".github.com") or host.startswith("github.")


@dataclass(frozen=True, slots=True)
class Joined:
    """The list after an entry came in, and what became of it: one line for the model."""

    entries: Sequence[Entry]
    line: str


def join(entries: Sequence[Entry], new: Entry, new_id: str) -> Joined:
    """Append an entry, or promote the reference that is the same thing; it keeps its place and its id."""
    for index, old in enumerate(entries):
        if not old.is_same(new):
            continue
        if old.is_artifact or not new.is_artifact:
            return Joined(entries, f"Already recorded: {old.id}")
        promoted = replace(new, id=old.id)
        return Joined([*entries[:index], promoted, *entries[index + 1 :]], f"Promoted artifact: {old.id}")
    return Joined([*entries, replace(new, id=new_id)], f"Added {new.kind}: {new_id}")


def lines(entries: Iterable[Entry]) -> list[str]:
    """The list as a model reads it."""
    return [
        f"{entry.id} ({entry.type}, {entry.kind}) {entry.label}" + (f" — {entry.place}" if entry.place else "")
        for entry in entries
    ]
