"""What an editor pushes right after it has connected, and what everybody reads afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from ahpd import ConfigKey
from ahpd.client import AhpClient
from ahpd.schemas import misfit
from ahpd.session.names import ROOT
from ahpd.testing import OpenHost, open_host
from ahpd_vscode_settings.keys import KEYS

from ...conftest import Json, outcome

BURST: tuple[Json, ...] = (
    {
        "http.proxy": "http://proxy.test:3128",
        "http.proxyKerberosServicePrincipal": "HTTP/proxy.test",
        "http.noProxy": ["localhost", "*.test"],
        "agentMerge.enabled": True,
        "agentMerge.addressReviews": False,
        "agentMerge.fixCI": False,
        "agentMerge.resolveConflicts": False,
        "agentMerge.mergePullRequest": "ifUnchanged",
        "agentMerge.mergeMethod": "rebase",
        "agentMerge.replyAttribution": False,
        "activeAgentTitleGeneration": True,
        "deferredTitleGeneration": False,
        "artifactTools": True,
        "artifactToolsCompactPrompts": False,
        "autoAttachPullRequests": False,
        "markdownPlanRichLinksEnabled": True,
        "systemProxyEnabled": False,
        "githubMcpServerEnabled": False,
        "copilotMultiRootEnabled": True,
        "claudeMultiRootEnabled": True,
        "codexMultiRootEnabled": True,
        "codexAgentEnabled": True,
        "autoArchiveMergedSessionsAfterDays": 7,
        "autoDeleteArchivedMergedSessionsAfterDays": 1.5,
        "migrateLegacyCopilotCliEnabled": True,
        "sessionCatalogEnabled": False,
        "showExternalSessions": "last7Days",
        "autoReplyEnabled": True,
        "globalAutoApproveEnabled": True,
        "sessionSyncEnabled": True,
        "editAutoApprovePatterns": {"**/*": False, "docs/**": True},
        "editTelemetryEnabled": False,
    },
    {"telemetryLevel": "crash"},
    {"terminalAutoApproveEnabled": False},
    {"terminalAutoApproveRules": {"ls": True, "/^git\\s+status\\b/": {"approve": True, "matchCommandLine": True}}},
    {"autoApprovePolicyRestricted": True},
    {"workspaceTrust": {"enabled": True, "trustedUris": ["file:///src/ours"]}},
    {"disableRepoInfoTelemetry": True},
)
"""Seven pushes, all under the number 0, as that editor numbers them."""


@pytest.fixture
async def host() -> AsyncIterator[OpenHost]:
    async with open_host(["agent-echo", "artifacts", "session-tools", "vscode-settings"]) as opened:
        yield opened


def values_of(client: AhpClient) -> Json:
    values: Json = client.states[ROOT]["config"]["values"]
    return values


async def push(client: AhpClient, values: Json) -> None:
    action = {"type": "root/configChanged", "config": values}
    await client.notify("dispatchAction", {"channel": ROOT, "clientSeq": 0, "action": action})


async def refusal(client: AhpClient, values: Json) -> str | None:
    return await outcome(client, ROOT, {"type": "root/configChanged", "config": values})


async def test_every_key_of_the_burst_is_taken_and_read_by_everybody(host: OpenHost) -> None:
    editor, other = await host.client(), await host.client()
    session = await other.create_session("echo")
    await other.until(lambda: other.states[session]["lifecycle"] != "creating")
    file, tools = host.host.config.writable.read_text(), other.states[session].get("serverTools")
    for values in BURST:
        await push(editor, values)
    await editor.until(lambda: values_of(editor)["disableRepoInfoTelemetry"] is True)
    await other.until(lambda: values_of(other)["disableRepoInfoTelemetry"] is True)
    newcomer = await host.client()
    wanted = {name: value for values in BURST for name, value in values.items()}
    for client in (editor, other, newcomer):
        assert {name: values_of(client)[name] for name in wanted} == wanted
    told = [entry for entry in editor.actions if entry["action"]["type"] == "root/configChanged"]
    assert [entry.get("rejectionReason") for entry in told] == [None] * len(BURST)
    assert [entry["action"]["config"] for entry in told] == list(BURST)
    assert host.host.config.writable.read_text() == file, "they are no settings of this host's files"
    await other.request("ping")
    assert other.states[session].get("serverTools") == tools
    assert "session/serverToolsChanged" not in [entry["action"]["type"] for entry in other.actions]


async def test_a_second_window_has_the_last_word(host: OpenHost) -> None:
    one, two = await host.client(), await host.client()
    await push(one, {"terminalAutoApproveRules": {"ls": True, "rm": False}})
    await two.until(lambda: "rm" in values_of(two)["terminalAutoApproveRules"])  # else nobody says who was last
    await push(two, {"terminalAutoApproveRules": {"ls": True}})
    await one.until(lambda: values_of(one)["terminalAutoApproveRules"] == {"ls": True})
    await two.until(lambda: values_of(two)["terminalAutoApproveRules"] == {"ls": True})
    assert values_of(two) == values_of(one)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"telemetryLevel": "some"}, "telemetryLevel must be one of all, error, crash, off"),
        ({"http.noProxy": "localhost"}, "http.noProxy must be a list of texts"),
        ({"workspaceTrust": {"enabled": True}}, "workspaceTrust must be a table with enabled, trustedUris"),
        ({"workspaceTrust": {"enabled": 1, "trustedUris": []}}, "workspaceTrust.enabled must be true or false"),
        ({"modelCapabilityOverrides": {"*": {"reasoningEffort": "more"}}}, "modelCapabilityOverrides.*"),
        ({"telemetryLevel": "off", "telemetryLevels": "off"}, "telemetryLevels is not a setting of this host"),
    ],
)
async def test_what_does_not_fit_is_refused(host: OpenHost, values: Any, named: str) -> None:
    editor = await host.client()
    before = editor.states[ROOT]
    reason = await refusal(editor, values)
    assert reason is not None
    assert named in reason
    assert editor.states[ROOT] == before


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_each_key_is_declared_to_be_pushed(key: ConfigKey) -> None:
    assert key.pushed
    assert key.in_root
    assert key.schema["title"]
    assert key.default is None or misfit(key.default, key.schema) is None


def test_what_this_host_acts_on_is_not_declared_again() -> None:
    names = [key.name for key in KEYS]
    assert len(names) == len(set(names))
    assert not {"deferredTitleGeneration", "artifactToolsCompactPrompts", "mcpServers"} & set(names)
