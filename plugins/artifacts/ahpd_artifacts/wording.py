"""The words and input schemas of the artifact tools, as data. A model reads nothing else about them.

Property names and types are interfaces; every description is ours to better. Implements the instruction and the
compact wording of the product's "The wording a session is given".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ahpd import Offer, Wording

from ahpd_artifacts.entries import TYPES
from ahpd_artifacts.settings import is_compact

Schema = Mapping[str, Any]


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


ADD = (
    "Record what is notable about this session, so that the user finds it beside the chat input. An artifact is "
    "a deliverable: an issue or pull request you create or try to fix, change or unblock, or a result of its "
    "own that the user asked for or is likely to open again. A reference is an existing thing the user will "
    "want to look at, such as an issue or pull request you only read or reviewed. Pass everything you have in "
    "one call. An entry for something recorded before is not added twice; one that makes a reference an "
    "artifact keeps its id. The answer has one line, with the id, for each item."
)
INSTRUCTION = (
    "Use `add_artifact_or_reference` to put the few notable things of a session where the user sees them, "
    "beside the input. This is optional, and most sessions need none: it is no inventory of what you touched.\n"
    "- Artifacts: every issue or pull request you create, or try to fix, change or unblock; and other results "
    "only when the user asked for them as deliverables, or when they stand alone and will likely be opened "
    "again.\n"
    "- References: existing things the user will want to look at, such as an issue or pull request you only "
    "inspected or reviewed.\n"
    "- Leave out routine, scratch, cache, log, intermediate and configuration files, resources you came by, "
    "commits unless the user asked for them, and sessions and chats.\n"
    "- Never create, copy or move a file only to record it.\n"
    "- Record several things in one call, when they are worth it, not one by one.\n"
    "`remove_artifact_or_reference` and `list_artifacts_and_references` exist as well; look them up when you "
    "need them."
)
ADD_COMPACT = Wording(
    description=(
        "Record deliverables and things worth looking at for the user. Artifacts: issues and pull requests you "
        "create or try to fix, change or unblock, and deliverables asked for or likely to be opened again. "
        "References: existing things the user will want to see. No routine, scratch or configuration files, no "
        "commits unless asked, no sessions or chats, and no file made only to be recorded. Call "
        "`add_artifact_or_reference` once for all you have."
    ),
    instruction=(
        "Recording artifacts and references is optional and most sessions need none. Follow the rules in the "
        "description of `add_artifact_or_reference` and batch your entries. `remove_artifact_or_reference` and "
        "`list_artifacts_and_references` exist as well."
    ),
)

_ITEM: Schema = {
    "type": "object",
    "properties": {
        "type": _text("What it is; resource only when nothing else fits.", enum=list(TYPES)),
        "label": _text("A short name the user will recognise."),
        "isArtifact": {
            "type": "boolean",
            "description": "True for an artifact, something this session delivers; false for a reference, "
            "something that exists and is worth a look.",
        },
        "link": _text("Its http(s) URL. Needed for pullRequest, issue, commit and website."),
        "uri": _text("Its absolute URI with the scheme, such as file:///a/b. Needed for file and resource."),
        "commitHash": _text("The commit's full hash. Needed for commit, beside link."),
    },
    "required": ["type", "label", "isArtifact"],
}
ADD_INPUT: Mapping[str, Schema] = {
    "items": {"type": "array", "minItems": 1, "items": _ITEM, "description": "Everything to record, at least one."}
}

REMOVE = (
    "Take an artifact or reference off this session's record, for one that is wrong or no longer worth showing. "
    "The thing itself stays as it is."
)
REMOVE_INPUT: Mapping[str, Schema] = {
    "id": _text("The entry's id, as add_artifact_or_reference or list_artifacts_and_references answered it.")
}

LIST = "List what is recorded for this session: the id, kind, label and place of every artifact and reference."


def add_here(offer: Offer) -> Wording | None:
    return ADD_COMPACT if is_compact(offer) else None
