"""Directories and projects as people name them: comparing places, and making a URI of one. Pure text."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

# Two letters at least: a scheme of one is the drive of a Windows path.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:\S+")


def place(text: str) -> str:
    """One spelling for a local path and its `file:` URI, without a slash at the end; other URIs as they are."""
    path = unquote(text.removeprefix("file://")) if text.startswith("file:///") else text
    if path.startswith("/"):
        path = os.path.normpath(path)
    return path.rstrip("/") or "/"


def places(summary: Mapping[str, Any]) -> list[str]:
    """The working directories of a row, as `place` spells them."""
    return [place(directory) for directory in summary.get("workingDirectories") or ()]


def is_at(workspace: str, summary: Mapping[str, Any]) -> bool:
    """Whether a row works in this project, by name or URI, or in this directory. Case makes no difference."""
    project = summary.get("project") or {}
    wanted = place(workspace).lower()
    known = places(summary) + ([place(project["uri"])] if project.get("uri") else [])
    by_name = str(project.get("displayName", "")).lower() == workspace.strip().lower()
    return by_name or wanted in (one.lower() for one in known)


def is_below(path: str, summary: Mapping[str, Any]) -> bool:
    """Whether a working directory of a row is this path, or lies in it."""
    wanted = place(path)
    inside = wanted.rstrip("/") + "/"
    return any(one == wanted or one.startswith(inside) for one in places(summary))


def find(workspace: str, summaries: Iterable[Mapping[str, Any]]) -> list[str]:
    """The URIs a workspace may mean: one when it is clear, several for a shared name, none when nothing fits.

    A known project or directory comes first, then a project's name, then the path or URI itself.
    """
    wanted = place(workspace)
    names: dict[str, str] = {}
    for summary in summaries:
        project = summary.get("project") or {}
        for uri in (project.get("uri"), *(summary.get("workingDirectories") or ())):
            if uri and place(uri) == wanted:
                return [uri]
        if str(project.get("displayName", "")).lower() == workspace.strip().lower() and project.get("uri"):
            names.setdefault(place(project["uri"]), project["uri"])
    return list(names.values()) or _itself(workspace)


def project(directory: str, summaries: Iterable[Mapping[str, Any]]) -> str | None:
    """The project the list says a directory belongs to, as `place` spells it; `None` when it does not say."""
    wanted = place(directory)
    for summary in summaries:
        found = (summary.get("project") or {}).get("uri")
        if found and wanted in (place(found), *places(summary)):
            return place(found)
    return None


def local(text: str) -> str | None:
    """The path of this machine that a path or `file:` URI names, `None` for anything else."""
    path = place(text)
    return path if path.startswith("/") else None


def folder(text: str) -> str | None:
    """As `local`, for what a model gives: a `file:` URI must be a plain one, a path may hold any character."""
    if text.startswith("/"):
        return "/" + place(text).lstrip("/")
    parts = urlsplit(text)
    is_plain = parts.scheme == "file" and parts.netloc in ("", "localhost") and not {"?", "#"} & set(text)
    return local(f"file://{parts.path}") if is_plain and parts.path.startswith("/") else None


def uri(path: str) -> str:
    return PurePosixPath(path).as_uri()


def _itself(workspace: str) -> list[str]:
    if workspace.startswith(("/", "file:///")):
        return [uri(place(workspace))]
    return [workspace] if _URI.fullmatch(workspace) else []
