"""The turn engine: a turn begins, runs inside its session's nursery, and ends exactly once.

An agent that raises, hangs up or is cancelled becomes state here and goes no further. Messages that came while
a turn ran begin turns of their own when it has ended well; after a failure or a cancel they wait to be asked
for, so that one mistake is not followed by ten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import trio

from ahpd.access import Principal
from ahpd.agents import Agent, AgentSession, Start
from ahpd.errors import AgentError, AhpdError
from ahpd.log import get
from ahpd.session.background import BackgroundWork
from ahpd.session.chats import Chats
from ahpd.session.history import History
from ahpd.session.live import LiveChat, LiveSession, QueuedMessage, now
from ahpd.session.toolbox import Toolboxes
from ahpd.session.turn import RunningTurn
from ahpd.state import Json
from ahpd.tooling.fence import pass_on, sole

SETTLE_SECONDS = 120.0
"""How long each thing may take that was put off until a turn has ended."""
CLOSE_SECONDS = 2.0
"""How long an agent may take to let go."""


class Turns:
    """Begins, ends and queues turns of live chats."""

    def __init__(self, chats: Chats, toolboxes: Toolboxes, client_tool_timeout_ms: int = 600_000) -> None:
        self.chats, self.history = chats, History(chats)
        self._toolboxes = toolboxes
        self._client_tool_timeout_ms = client_tool_timeout_ms
        self.accepting = True
        """False while the host stops: nothing new begins."""

    # -- beginning --------------------------------------------------------------------------------------

    def begin(
        self,
        chat: LiveChat,
        message: Json,
        principal: Principal,
        *,
        turn_id: str | None = None,
        started_at: str | None = None,
        queued_id: str | None = None,
        origin: Mapping[str, Any] | None = None,
    ) -> RunningTurn:
        """Start a turn in a free chat. The caller has made sure that it is free."""
        turn_id = turn_id or str(uuid4())
        action: Json = {
            "type": "chat/turnStarted",
            "turnId": turn_id,
            "startedAt": started_at or now(),
            "message": message,
        }
        if queued_id is not None:
            action["queuedMessageId"] = queued_id
            chat.queue.pop(queued_id, None)
        toolbox = self._toolboxes.of(chat)
        turn = chat.turn = RunningTurn(self.chats, chat, turn_id, message, principal, toolbox)
        chat.turn_ids.add(turn_id)
        self.chats.dispatch(chat, action, origin)
        self.chats.name_after(chat, turn.text)
        self._launch(chat, turn)
        return turn

    def resume(self, chat: LiveChat, failed: Json, principal: Principal, origin: Mapping[str, Any] | None) -> None:
        """Take a failed turn up again, with the answer it had got to."""
        toolbox = self._toolboxes.of(chat)
        turn = RunningTurn(self.chats, chat, failed["id"], failed["message"], principal, toolbox, resumed=True)
        chat.turn = turn
        self.chats.dispatch(chat, {"type": "chat/turnResume", "turnId": turn.id}, origin)
        self._launch(chat, turn)

    def _launch(self, chat: LiveChat, turn: RunningTurn) -> None:
        nursery = chat.session.nursery
        assert nursery is not None  # a chat is reachable only while its session's nursery is open
        nursery.start_soon(self._run, chat, turn)

    async def _run(self, chat: LiveChat, turn: RunningTurn) -> None:
        failure: AgentError | None = None
        try:
            # Inside the fence: what an agent raises while it is cancelled comes out of the scope.
            with turn.scope:
                async with chat.prompting:
                    agent = await self.open_agent(chat)
                    await agent.prompt(turn)
        except BaseException as error:
            pass_on(error)
            failure = _as_agent_error(error)
            if failure is None:
                get("ahpd.turns").exception("agent crashed", chat=chat.uri, turn=turn.id)
                await self.close_agent(chat)
                failure = AgentError(f"{chat.session.provider} stopped unexpectedly: {error!r}")
        if not turn.ended:
            self._end(chat, turn, failure)

    async def open_agent(self, chat: LiveChat) -> AgentSession:
        """The chat's agent, opened if it is not. Raises what the agent raises."""
        async with chat.opening:
            if chat.stale:
                await self.close_agent(chat)
            if chat.agent is None:
                chat.stale = False
                if chat.session.agent is None:
                    raise AgentError(f"No agent called {chat.session.provider} is enabled here")
                chat.agent = await self._open(chat, chat.session.agent)
            return chat.agent

    async def _open(self, chat: LiveChat, agent: Agent) -> AgentSession:
        background = BackgroundWork(self.chats, chat)
        try:
            opened = await agent.open(self._start(chat, background, await self.history.behind(chat)))
        except BaseException:
            background.close()
            raise
        chat.background = background
        return opened

    def _start(self, chat: LiveChat, background: BackgroundWork, context: Sequence[Json]) -> Start:
        session = chat.session
        turns = self.chats.chat_state(chat).get("turns", [])
        return Start(
            id=session.id,
            session=session.uri,
            chat=chat.uri,
            settings=session.settings,
            working_directories=tuple(self.chats.directories(chat)),
            tools=self._toolboxes.of(chat),
            run_process=session.children.start,
            resume=bool(turns),
            history=turns,
            client_tool_timeout_ms=self._client_tool_timeout_ms,
            strategy=session.strategy,
            context=context,
            background=background,
        )

    async def close_agent(self, chat: LiveChat) -> None:
        """Let a chat's agent go; the next turn opens it again with the chat's history."""
        agent = self._take_agent(chat)
        if agent is not None:
            await self._close(chat, agent)

    @staticmethod
    def _take_agent(chat: LiveChat) -> AgentSession | None:
        """The chat's agent, which is the chat's no longer; what it left running is shown no more."""
        agent, chat.agent = chat.agent, None
        background, chat.background = chat.background, None
        if background is not None:
            background.close()
        return agent

    def rest(self, session: LiveSession) -> None:
        """Let the agents of a session go where no turn runs; the next turn opens them again."""
        for chat in session.chats.values():
            if chat.turn is None:
                self.forget_history(chat)

    def forget_history(self, chat: LiveChat) -> None:
        """What the agent remembers must end where the chat now ends: it opens again with the shorter history."""
        agent = self._take_agent(chat)  # now, not in the task: the next turn may begin before that runs
        chat.stale = True  # one that is being opened just now began with what is no longer so
        nursery = chat.session.nursery
        if agent is not None and nursery is not None:
            nursery.start_soon(self._close, chat, agent)

    async def _close(self, chat: LiveChat, agent: AgentSession) -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS) as scope:
            try:
                await agent.close()
            except BaseException as error:
                pass_on(error)
                get("ahpd.turns").exception("agent did not close well", chat=chat.uri)
        if scope.cancelled_caught:
            get("ahpd.turns").warning("agent did not close in time", chat=chat.uri)

    # -- ending -----------------------------------------------------------------------------------------

    def _end(self, chat: LiveChat, turn: RunningTurn, failure: AgentError | None) -> None:
        duration = turn.elapsed()
        if failure is None:
            action: Json = {"type": "chat/turnComplete", "turnId": turn.id, "duration": duration}
        else:
            error = {"errorType": failure.kind, "message": failure.sentence}
            part = {"kind": "error", "error": error, "resumable": failure.resumable}
            action = {"type": "chat/error", "turnId": turn.id, "duration": duration, "part": part}
        self._finish(chat, turn, action, None)
        if failure is None:
            self.take_up(chat)  # which waits while the chat settles

    def cancel(self, chat: LiveChat, origin: Mapping[str, Any] | None = None) -> None:
        """Cancel the running turn: at once in state, and its agent is stopped."""
        turn = chat.turn
        if isinstance(turn, RunningTurn):
            action = {"type": "chat/turnCancelled", "turnId": turn.id, "duration": turn.elapsed()}
            self._finish(chat, turn, action, origin)

    def _finish(self, chat: LiveChat, turn: RunningTurn, action: Json, origin: Mapping[str, Any] | None) -> None:
        chat.turn = None
        turn.stop()
        self.chats.dispatch(chat, action, origin)
        self.chats.keeper.turn_ended(chat)
        session = chat.session
        if chat.after_turn and session.nursery is not None:
            chat.settling = True
            session.nursery.start_soon(self._settle, chat, action["type"] == "chat/turnComplete")
        if self.chats.session_state(session).get("status", 0) & 32:
            self.chats.dispatch_session(session, {"type": "session/isReadChanged", "isRead": False})

    async def _settle(self, chat: LiveChat, ended_well: bool) -> None:
        """Do what was put off until the turn has ended, before anything else begins here."""
        try:
            while chat.after_turn:
                _, act = chat.after_turn.popitem()
                try:
                    with trio.fail_after(SETTLE_SECONDS):
                        await act()
                except AhpdError as error:
                    get("ahpd.turns").warning("put off, and refused", chat=chat.uri, why=error.sentence)
                except BaseException as error:
                    pass_on(error)
                    get("ahpd.turns").exception("put off, and failed", chat=chat.uri)
        finally:
            chat.settling = False
        if ended_well:
            self.take_up(chat)

    # -- waiting messages -------------------------------------------------------------------------------

    def is_free(self, chat: LiveChat) -> bool:
        """Nothing runs here and nothing waits to."""
        state = self.chats.chat_state(chat)
        waiting = state.get("queuedMessages") or state.get("steeringMessage")
        return chat.turn is None and not chat.settling and not waiting

    def queue(
        self,
        chat: LiveChat,
        message_id: str,
        message: Json,
        kept: QueuedMessage,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        """Put a message behind what runs, or change the one queued under that id; a free chat takes it up."""
        known = chat.queue.get(message_id)
        if known is not None:
            # Whoever wrote the words is whose turn they will be.
            chat.queue[message_id] = QueuedMessage(kept.principal, kept.by, known.revision + 1)
        else:
            chat.queue[message_id] = kept
        action = {
            "type": "chat/pendingMessageSet",
            "kind": "queued",
            "id": message_id,
            "message": message,
        }
        self.chats.dispatch(chat, action, origin)
        self.chats.keeper.record(chat)
        self.take_up(chat)

    def take_up(self, chat: LiveChat) -> None:
        """Begin the next waiting message of a chat where nothing runs."""
        busy = chat.turn is not None or chat.settling
        if busy or not self.accepting or chat.uri not in self.chats.by_uri:
            return
        state = self.chats.chat_state(chat)
        waiting = state.get("queuedMessages") or []
        slot = state.get("steeringMessage")
        if slot and slot["id"] in chat.queue:
            # Meant for a turn that ended before its agent looked: better a turn of its own than lost.
            self._begin_waiting(chat, "steering", slot)
        elif waiting:
            self._begin_waiting(chat, "queued", waiting[0])

    def _begin_waiting(self, chat: LiveChat, kind: str, entry: Json) -> None:
        kept = chat.queue.pop(entry["id"])
        action = {"type": "chat/pendingMessageRemoved", "kind": kind, "id": entry["id"]}
        self.chats.dispatch(chat, action)
        # The id a message is known by stays with it, unless somebody gave it to a turn already.
        taken = chat.session.has_turn(entry["id"]) or entry["id"] in chat.older_turns
        turn_id = None if taken else entry["id"]
        self.begin(chat, entry["message"], kept.principal, turn_id=turn_id, queued_id=entry["id"])

    def steer(
        self,
        chat: LiveChat,
        message_id: str,
        message: Json,
        kept: QueuedMessage,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        """Put a message into the running turn's slot, replacing the one that is there."""
        slot = self.chats.chat_state(chat).get("steeringMessage")
        if slot:
            chat.queue.pop(slot["id"], None)
        if chat.turn is not None:
            chat.queue[message_id] = kept
        action = {
            "type": "chat/pendingMessageSet",
            "kind": "steering",
            "id": message_id,
            "message": message,
        }
        self.chats.dispatch(chat, action, origin)
        self.chats.keeper.record(chat)


def _as_agent_error(error: BaseException) -> AgentError | None:
    """The one `AgentError` inside nested exception groups, when that is all they hold."""
    error = sole(error)
    if isinstance(error, AgentError):
        return error
    return AgentError(error.sentence) if isinstance(error, AhpdError) else None
