"""Writes `protocol.md`: what this host serves of the Agent Host Protocol, and why not the rest.

    python docs/generate_protocol.py

What is served is read from the tables that decide it, the silent rules from the names of their tests; only the
reasons for what is missing are written down, in `protocol.toml`.
"""

from __future__ import annotations

import re
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ahpd.config import Config
from ahpd.places import Places
from ahpd.plugins import Loader
from ahpd.ports import Method
from ahpd.protocol.actions import ACTIONS, ActionRule, combine, family
from ahpd.protocol.versions import OLD_RANGES, SUPPORTED_RANGES
from ahpd.registry import build
from ahpd.wire import gate

HERE = Path(__file__).parent
RULES = HERE.parent / "tests" / "kernel" / "session" / "test_silent_rules.py"
NOTICES = ("action", "root/sessionAdded", "root/sessionRemoved", "root/sessionSummaryChanged")
"""What the kernel sends without being asked."""

HEAD = f"""# What this host serves of the protocol

Written by `docs/generate_protocol.py`; change the tables it reads, or the reasons in `docs/protocol.toml`.

Versions: {", ".join(f"`{each}`" for each in SUPPORTED_RANGES)}; of those a client offers, the highest. With
`--ahp-compat 0.7` also {" and ".join(f"`{each}`" for each in OLD_RANGES)}, see the end. Anything else is refused
with -32005. A command that is not served is refused with -32601, an action with a `rejectionReason`.
"""

OLDER = """## Clients of 0.8 and 0.7

Served with `--ahp-compat 0.7` (`ahpCompat` in the configuration), from the same state, in their own words:

| here | sent to 0.8 and 0.7 |
| --- | --- |
| session `lifecycle: "failed"` | `"creationFailed"` |
| the error part a turn ends with | `Turn.error`, and no such part, in snapshots and pages |
| `chat/error` with `part` | with `error` |
| `enablement` of a customization or a toggle | 0.7: `enabled`, the first decision or on; read as the session's |
| an action that came after their version | nothing; its number is skipped |
| a refusal of one | as it was sent, so that its sender can let go of it |
| `createSession.fork` | -32602 |

A failed turn that is taken up again (`chat/turnResume`) has no words before 0.9: such a client goes on showing the
failure until its next snapshot. The same goes for the order of chats and for read and archived marks of one chat.
"""


def reasons() -> dict[str, Any]:
    return tomllib.loads((HERE / "protocol.toml").read_text("utf-8"))


def tested_rules() -> dict[int, str]:
    """Number and words of every silent rule that has a test."""
    found = re.findall(r"^(?:async )?def test_rule_(\d\d)_(\w+)", RULES.read_text("utf-8"), re.MULTILINE)
    return {int(number): words.replace("_", " ") for number, words in found}


def page() -> str:
    """The whole of `protocol.md`."""
    data = reasons()
    parts = [HEAD, *_commands(data), *_channels(data), *_actions(data), *_notices(data), *_rules(data), OLDER]
    return "\n".join(parts)


def _table(title: str, columns: str, rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield f"## {title}\n"
    heads = columns.split(" | ")
    yield f"| {columns} |\n|{' --- |' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _grant(grant: str | None) -> str:
    return "none" if grant is None else f"`{grant}`"


def _name(name: str) -> str:
    return name if " " in name else f"`{name}`"


def _commands(data: Mapping[str, Any]) -> Iterator[str]:
    notes = data["command_notes"]
    rows = {name: ("yes", _grant(grant), notes.get(name, "")) for name, grant in gate.METHODS.items()}
    rows |= {name: ("no", "", why) for name, why in data["commands"].items()}
    ordered = sorted(rows.items(), key=lambda row: (row[1][0] == "no", row[0]))
    yield from _table("Commands", "command | served | grant | ", ((_name(name), *row) for name, row in ordered))
    added = ((f"`{name}`", f"`{plugin}`", _grant(method.grant)) for name, (plugin, method) in _of_plugins())
    yield from _table("Commands of plugins", "command | plugin | grant", added)
    yield "Served while the plugin is on; these are on in a new installation.\n"


def _of_plugins() -> list[tuple[str, tuple[str, Method]]]:
    with tempfile.TemporaryDirectory() as home:
        config = Config.load(Places.from_environment({"AHPD_HOME": home}))
        registry = build(Loader(config).load_all(), config)
    return sorted(registry.methods.items())


def _channels(data: Mapping[str, Any]) -> Iterator[str]:
    rows = [(f"`{kind}`", "yes", _grant(grant), "") for kind, grant in gate.CHANNELS.items()]
    rows += [(f"`{kind}`", "no", "", each["why"]) for kind, each in data["families"].items()]
    rows.append(("telemetry", "no", "", "telemetry arrives with its plugin; no channel is announced"))
    yield from _table("Channels", "channel | served | grant to watch | ", rows)


def _actions(data: Mapping[str, Any]) -> Iterator[str]:
    rows = [(name, rule, *_of_kernel(name, rule, data)) for name, rule in ACTIONS.items()]
    for kind, each in data["families"].items():
        table = combine(family(kind, host=each.get("host", {}), client=each.get("client", {})))
        rows += [(name, rule, "no", "", each["why"]) for name, rule in table.items()]
    lines = (
        (f"`{name}`", "clients" if rule.client_may else "host", ".".join(map(str, rule.since)), served, grant, why)
        for name, rule, served, grant, why in rows
    )
    yield from _table("Actions", "action | said by | since | served | grant | ", lines)
    yield "What clients may say the host says as well.\n"


def _of_kernel(name: str, rule: ActionRule, data: Mapping[str, Any]) -> tuple[str, str, str]:
    if not rule.client_may:
        why = data["unsaid"].get(name, "")
        return "no" if why else "yes", "", why
    why = data["refused"].get(name, "")
    return "refused" if why else "yes", _grant(gate.ACTIONS[name]), why


def _notices(data: Mapping[str, Any]) -> Iterator[str]:
    rows = [(f"`{name}`", "yes", "") for name in NOTICES]
    rows += [(_name(name), "no", why) for name, why in data["notifications"].items()]
    yield from _table("What the host sends by itself", "method | sent | ", rows)


def _rules(data: Mapping[str, Any]) -> Iterator[str]:
    tested, notes = tested_rules(), data["rule_notes"]
    rows = {number: (words, "yes", notes.get(str(number), "")) for number, words in tested.items()}
    rows |= {int(number): (rule, "no", why) for number, (rule, why) in data["rules"].items()}
    yield from _table(
        "Rules that fail silently",
        "number | rule | tested | ",
        ((str(number), *row) for number, row in sorted(rows.items())),
    )
    yield f"The tests are in `{RULES.relative_to(HERE.parent)}`, by number.\n"


if __name__ == "__main__":
    (HERE / "protocol.md").write_text(page(), "utf-8")
