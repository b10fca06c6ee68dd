"""Nothing a client can send is without a row in the gate, and no row stands for nothing."""

from ahpd.access import Subjects
from ahpd.config import Config
from ahpd.places import Places
from ahpd.plugins import Loader
from ahpd.protocol.actions import ACTIONS, client_actions
from ahpd.protocol.shapes import ACTION_SHAPES, PARAM_SHAPES
from ahpd.registry import build
from ahpd.session.inbound import CHAT, SESSION
from ahpd.wire import gate
from ahpd.wire.connection import NOTIFICATIONS
from ahpd.wire.methods import COMMANDS

ANSWERED_BY_THE_CONNECTION = {"ping"}


def test_every_command_served_has_a_row_and_every_row_is_served() -> None:
    assert set(gate.METHODS) == set(COMMANDS) | set(NOTIFICATIONS) | ANSWERED_BY_THE_CONNECTION


def test_every_command_has_a_shape() -> None:
    assert set(gate.METHODS) <= set(PARAM_SHAPES)


def test_every_action_a_client_may_dispatch_has_a_row_a_shape_and_a_handler() -> None:
    allowed = set(client_actions(ACTIONS))
    handled = set(CHAT) | set(SESSION) | {"root/configChanged"}
    assert set(gate.ACTIONS) == allowed
    assert allowed <= set(ACTION_SHAPES)
    assert handled == allowed


def test_every_grant_in_the_gate_is_one_that_is_declared() -> None:
    subjects = Subjects()
    rows = [*gate.METHODS.values(), *gate.ACTIONS.values(), *gate.CHANNELS.values()]
    unknown = {grant for grant in rows if grant is not None and not subjects.known(grant)}
    assert unknown == set()


def test_commands_of_plugins_are_not_the_kernels_and_ask_for_grants_that_are_declared() -> None:
    config = Config.load(Places.from_environment({"AHPD_HOME": "/nonexistent"}))
    methods = build(Loader(config).load_all(), config).methods
    assert "vscode/removeSessionArtifact" in methods
    assert gate.METHODS.keys().isdisjoint(methods)
    subjects = Subjects()
    assert all(method.grant is None or subjects.known(method.grant) for _, method in methods.values())


def test_no_command_served_could_be_taken_by_a_plugin() -> None:
    assert set(gate.METHODS) <= set(PARAM_SHAPES), "the registry refuses what has a shape"


def test_every_kind_of_channel_says_what_watching_it_needs() -> None:
    assert {rule.kind for rule in ACTIONS.values()} == set(gate.CHANNELS)
