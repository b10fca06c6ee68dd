"""ahpd-broken: raises when it is imported, and leaves a mark when it was (AHPD_BROKEN_MARK names the file)."""

import os
from pathlib import Path

if mark := os.environ.get("AHPD_BROKEN_MARK"):
    with Path(mark).open("a") as file:
        file.write("imported\n")

raise RuntimeError("this plugin is broken on purpose")
