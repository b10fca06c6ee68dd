"""Installs made-up plugin distributions into a folder: metadata and a module, as pip leaves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def install(
    site: Path,
    distribution: str,
    modules: Mapping[str, str],
    *,
    points: Mapping[str, str] | None = None,
    version: str = "1.0",
    requires: Sequence[str] = (),
) -> None:
    """Put `distribution` into `site`. `modules` are sources by module name; `points` its entry points, by default
    one named like the first module."""
    first = next(iter(modules), "none")
    points = {first: first} if points is None else points
    folder = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {distribution}", f"Version: {version}"]
    lines += [f"Requires-Dist: {line}" for line in requires]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
    (folder / "entry_points.txt").write_text("[ahpd]\n" + "".join(f"{n} = {v}\n" for n, v in points.items()))
    for name, source in modules.items():
        (site / f"{name}.py").write_text(source)
