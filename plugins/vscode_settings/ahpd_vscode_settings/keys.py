"""Every key of root config that VS Code's own agent host has: name, type, default, allowed values, as it has them.

Not among them: `deferredTitleGeneration`, `artifactToolsCompactPrompts` and `mcpServers`, which mean something to
this host and are declared by whoever acts on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ahpd import ConfigKey

SWITCH: Mapping[str, Any] = {"type": "boolean"}
TEXT: Mapping[str, Any] = {"type": "string"}
TEXTS: Mapping[str, Any] = {"type": "array", "items": TEXT}
NUMBER: Mapping[str, Any] = {"type": "number"}
TABLE: Mapping[str, Any] = {"type": "object"}


def key(name: str, schema: Mapping[str, Any], title: str, default: Any = None, **more: Any) -> ConfigKey:
    return ConfigKey(name, {**schema, "title": title, **more}, default, pushed=True, applies="live")


def choice(*values: str) -> Mapping[str, Any]:
    return {"type": "string", "enum": list(values)}


def table(members: Mapping[str, Mapping[str, Any]], required: Sequence[str] = ()) -> Mapping[str, Any]:
    schema = {"type": "object", "properties": dict(members)}
    return {**schema, "required": list(required)} if required else schema


ON_OR_OFF = choice("off", "on")

NETWORK = (
    key("http.proxy", TEXT, "Proxy for outgoing requests"),
    key("http.proxyKerberosServicePrincipal", TEXT, "Kerberos service that proxy signs in with"),
    key("http.noProxy", TEXTS, "Domains reached without the proxy", []),
    key("systemProxyEnabled", SWITCH, "Use the proxy the system is set to", True),
    key("githubEnterpriseUri", TEXT, "Address of a GitHub Enterprise server"),
    key("allowSignedOutWhenUsable", SWITCH, "Work without signing in where that is possible", False),
)

TELEMETRY = (
    key("telemetryLevel", choice("all", "error", "crash", "off"), "How much is reported at most", "all"),
    key("disableRepoInfoTelemetry", SWITCH, "Report nothing about repositories", False),
    key("editTelemetryEnabled", SWITCH, "Report who wrote which edit", True),
    key("copilotSdkLogLevel", choice("info", "trace"), "How much the Copilot SDK logs", "info"),
)

EDITS = {
    "**/*": True,
    **dict.fromkeys(
        (
            "**/.git/**",
            "**/{package.json,server.xml,build.rs,web.config,.gitattributes,.env,Cargo.toml}",
            "**/{.npmrc,.yarnrc,.yarnrc.yml,.pnpmfile.js,.pnpmfile.cjs,.pnpmfile.mjs,pnpm-workspace.yaml}",
            "**/*.{code-workspace,csproj,fsproj,vbproj,vcxproj,proj,targets,props,gradle,gradle.kts}",
            "**/gradle.properties",
            "**/ruby_lsp/*/addon",
            "**/*.lock",
            "**/*-lock.{yaml,json}",
            "**/.mcp.json",
            "**/.npmrc",
            "**/.vscode/*.json",
            "**/.github/agents/**",
            "**/.github/hooks/**",
            "**/.claude/agents/**",
            "**/.claude/settings.json",
            "**/.claude/settings.local.json",
            "**/.codex/agents/**",
            "**/.codex/config.toml",
            "**/.codex/hooks.json",
        ),
        False,
    ),
}
"""Files an agent may change without asking, and those where it must."""

APPROVAL = (
    key(
        "permissions",
        table({"allow": TEXTS, "deny": TEXTS}),
        "Tools that always may, and that never may",
        {"allow": [], "deny": []},
        sessionMutable=True,
    ),
    key("globalAutoApproveEnabled", SWITCH, "Approve every tool call without asking", False),
    key("autoApprovePolicyRestricted", SWITCH, "Approving without asking is forbidden", False, readOnly=True),
    key("editAutoApprovePatterns", TABLE, "Files that may be changed without asking", EDITS),
    key("terminalAutoApproveEnabled", SWITCH, "Approve commands by rule", True),
    key("terminalAutoApproveRules", TABLE, "Which commands run without asking", {}),
    key("autoReplyEnabled", SWITCH, "Answer an agent's questions by itself", False),
    key(
        "workspaceTrust",
        table({"enabled": SWITCH, "trustedUris": TEXTS}, ["enabled", "trustedUris"]),
        "Folders the person trusts",
        readOnly=True,
    ),
    key(
        "sandbox",
        table(
            {
                "enabled": ON_OR_OFF,
                "enabled.windows": ON_OR_OFF,
                "allowNetwork": SWITCH,
                "allowUnsandboxedCommands": SWITCH,
                "fileSystem.linux": TABLE,
                "fileSystem.mac": TABLE,
                "fileSystem.windows": TABLE,
                "advanced.runtime": TABLE,
                "allowedNetworkDomains": TEXTS,
                "deniedNetworkDomains": TEXTS,
            }
        ),
        "What agents can reach",
    ),
)

SESSIONS = (
    key("sessionSyncEnabled", SWITCH, "Keep sessions in step across machines", False),
    key("sessionCatalogEnabled", SWITCH, "List sessions from one catalog", True),
    key(
        "showExternalSessions",
        choice("none", "recent", "last24Hours", "last7Days", "last30Days"),
        "List sessions made elsewhere",
        "none",
    ),
    key("migrateLegacyCopilotCliEnabled", SWITCH, "Take over older Copilot CLI sessions", False),
    key("autoArchiveMergedSessionsAfterDays", NUMBER, "Days until a merged session is archived; 0 is never", 0),
    key("autoDeleteArchivedMergedSessionsAfterDays", NUMBER, "Days until it is then deleted; 0 is never", 0),
    key("activeAgentTitleGeneration", SWITCH, "Let the working agent name its chats", False),
    key("autoAttachPullRequests", SWITCH, "Tie pull requests to their sessions", True),
    key("artifactTools", SWITCH, "Let agents record what they made", False),
    key("markdownPlanRichLinksEnabled", SWITCH, "Ask for rich links in plans", False),
)

AGENTS = (
    key("codexAgentEnabled", SWITCH, "Offer Codex", False),
    key("copilotMultiRootEnabled", SWITCH, "Let Copilot work in several folders", False),
    key("claudeMultiRootEnabled", SWITCH, "Let Claude work in several folders", False),
    key("codexMultiRootEnabled", SWITCH, "Let Codex work in several folders", False),
    key("byokModelsEnabled", SWITCH, "Offer models with one's own key", False),
    key("githubMcpServerEnabled", SWITCH, "Give sessions GitHub's MCP server", True),
    key(
        "customizations",
        {
            "type": "array",
            "items": table({"uri": TEXT, "displayName": TEXT, "description": TEXT}, ["uri", "displayName"]),
        },
        "Agent plugins offered to sessions",
        [],
    ),
    key(
        "sessionCustomizationDiscoveryMode",
        choice("scan", "discover"),
        "Where a session's customizations are looked for",
        "discover",
    ),
    key("rubberDuck", SWITCH, "Have a second model review changes", True),
    key("claudeAdvisor", SWITCH, "Give Claude models their advisor", False),
    key("opus48Prompt", SWITCH, "Use the prompt made for Opus 4.8", False),
    key("hydraFusion", SWITCH, "Offer the HydraFusion model", False),
    key("toolSearchEnabled", SWITCH, "Hide most tools behind a search", True),
    key("toolSearchDeferThreshold", NUMBER, "Tools from which on they are hidden", 1),
    key("skillCharBudget", NUMBER, "Characters skills may take in a prompt", 15000),
    key("autoModeTierOverride", TEXT, "What choosing a model aims for", ""),
    key("subagentModelGuidance", SWITCH, "Keep subagents on their own model", False),
    key(
        "modelCapabilityOverrides",
        {
            "type": "object",
            "additionalProperties": table(
                {
                    "family": TEXT,
                    "reasoningEffort": choice("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"),
                    "availableTools": TEXTS,
                    "excludedTools": TEXTS,
                    "modelCapabilities": TABLE,
                    "promptOverrideString": TEXT,
                    "promptOverrideFile": TEXT,
                }
            ),
        },
        "What single models are said to be able to",
        {},
    ),
    key("codex.personality", choice("default", "friendly", "pragmatic"), "How Codex speaks", "default"),
    key("codex.autoReviewPolicy", TEXT, "What Codex reviews by itself", ""),
)

TERMINALS = (
    key("defaultShell", TEXT, "Shell that terminals begin with"),
    key("enableCustomTerminalTool", SWITCH, "Use this host's terminal tool", False),
    key("enableShellInitScript", SWITCH, "Prepare the shell before each command", False),
)

MERGING = (
    key("agentMerge.enabled", SWITCH, "Let agents bring pull requests home", False),
    key("agentMerge.addressReviews", SWITCH, "Answer reviews", True),
    key("agentMerge.fixCI", SWITCH, "Mend failing checks", True),
    key("agentMerge.resolveConflicts", SWITCH, "Resolve conflicts", True),
    key(
        "agentMerge.mergePullRequest", choice("always", "ifUnchanged", "never"), "Merge when all is well", "never"
    ),
    key("agentMerge.mergeMethod", choice("auto", "squash", "merge", "rebase"), "How it is merged", "auto"),
    key("agentMerge.replyAttribution", SWITCH, "Say in replies that an agent wrote them", True),
)

KEYS: tuple[ConfigKey, ...] = (
    *NETWORK,
    *TELEMETRY,
    *APPROVAL,
    *SESSIONS,
    *AGENTS,
    *TERMINALS,
    *MERGING,
)
