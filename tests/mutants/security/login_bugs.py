"""Known bugs of logins, and of the gate before each call."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

LOGINS: Final = "unit.security.test_logins"
GATE: Final = "unit.security.test_gate"
TABLE: Final = "unit.broker.test_table"
SCRAM: Final = "unit.login.test_scram"
INSIDE: Final = "dledger_broker.security"

LOGIN_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "a-token-opens-from-anywhere",
        "a token is not bound to the connection that it was given to",
        [
            Edit(
                f"{INSIDE}.logins:Logins.user_of",
                "if login is not None and login.peer == peer and "
                "login.until > self._clock.monotonic():",
                "if login is not None and login.until > self._clock.monotonic():",
            )
        ],
        [f"{LOGINS}.test_a_token_opens_nothing_from_another_connection"],
    ),
    Mutant(
        "a-proof-logs-in-twice",
        "a proof that was used is taken again",
        [
            Edit(
                f"{INSIDE}.logins:Logins.finish",
                "proof = self._proofs.pop(final.nonce, None)",
                "proof = self._proofs.get(final.nonce, None)",
            )
        ],
        [f"{LOGINS}.test_a_proof_is_taken_once_and_from_its_connection"],
    ),
    Mutant(
        "a-changed-secret-ends-nothing",
        "who logged in with an older secret stays",
        [
            Edit(
                f"{INSIDE}.logins:_is_still",
                "return now is not None and now.credentials == before.credentials",
                "return now is not None",
            )
        ],
        [f'{LOGINS}.test_a_token_ends_with_what_it_was_given_for:"secret"'],
    ),
    Mutant(
        "any-proof-proves",
        "the proof of a login is not compared with the stored key",
        [
            Edit(
                "dledger_proto.login.scram:proves",
                "return hmac.compare_digest(stored_key_of(client_key), keys.stored_key)",
                "return True",
            )
        ],
        [f"{SCRAM}.test_another_secret_proves_nothing"],
    ),
    Mutant(
        "anybody-passes-for-a-member",
        "a client does not ask the member to prove that it knows the user",
        [
            Edit(
                "dledger_proto.login.scram:ClientLogin.check",
                "if not self._expected or not hmac.compare_digest(shown, self._expected):",
                "if not self._expected:",
            )
        ],
        [f"{SCRAM}.test_a_member_that_does_not_know_the_user_is_found_out"],
    ),
    Mutant(
        "the-first-policy-wins",
        "a denial does not win over a permission that stands behind it",
        [
            Edit(
                f"{INSIDE}.deciding:rights",
                "denied |= policy.actions",
                "denied |= policy.actions & ~allowed",
            )
        ],
        [f"{GATE}.test_a_denial_wins_wherever_it_stands"],
    ),
    Mutant(
        "a-look-is-never-denied",
        "GET comes with other rights, also where a policy denies it",
        [Edit(f"{INSIDE}.deciding:rights", "Action.GET & ~denied", "Action.GET")],
        [f"{GATE}.test_who_may_use_something_may_look_at_it"],
    ),
    Mutant(
        "a-refusal-tells-what-exists",
        "who may do nothing with a topic is told that it may not",
        [
            Edit(
                f"{INSIDE}.gate:_UserCaller._refusal",
                "if need.not_found and (of.name == UNKNOWN or not is_known):",
                "if False:",
            )
        ],
        [f"{GATE}.test_what_a_caller_may_not_know_does_not_exist"],
    ),
    Mutant(
        "rights-are-those-of-the-login",
        "what a user may is remembered from when it logged in",
        [
            Edit(
                f"{INSIDE}.gate:Gate.rights",
                "if known is not None and known[0] is user:",
                "if known is not None:",
            ),
            Edit(
                f"{INSIDE}.gate:Gate.rights",
                "key = id(user), host, resource",
                "key = 0, host, resource",
            ),
        ],
        [f"{GATE}.test_a_stream_feels_a_change_at_its_next_frame"],
    ),
    Mutant(
        "a-call-is-not-asked-who-makes-it",
        "unary calls pass the gate without a login",
        [
            Edit(
                "dledger_broker.rpc.calls:Calls.answer",
                "if row.rule is not rules.BEFORE_LOGIN:",
                "if False:",
            )
        ],
        [f"{TABLE}.test_nobody_creates_a_topic_without_a_login"],
    ),
    Mutant(
        "subscriptions-need-no-right",
        "by patterns in its subscriptions a first consumer learns the names of all topics",
        [Edit(f"{INSIDE}.rules:_subscribed", "for each in subscriptions:", "for each in ():")],
        [f"{TABLE}.test_a_first_consumer_learns_of_no_topic_without_a_right:true"],
    ),
    Mutant(
        "a-follower-speaks-for-every-caller",
        "a call whose handler asks for a right is forwarded, and the leader asks it of a member",
        [
            Edit(
                "dledger_broker.rpc.calls:Calls._on_leader",
                "if call.ends_here or (row.asks_caller and call.caller is not EVERYBODY):",
                "if call.ends_here:",
            )
        ],
        [f"{TABLE}.test_what_a_handler_asks_of_the_caller_is_not_forwarded"],
    ),
    Mutant(
        "the-gate-remembers-any-name",
        "a user without rights fills the memory with names of megabytes that nothing has",
        [Edit(f"{INSIDE}.rules:topic_need", "check_topic_name(name)", "pass")],
        [f'{TABLE}.test_the_gate_remembers_no_long_name:"DescribeTopic"'],
    ),
    Mutant(
        "a-denial-holds-for-known-names-alone",
        "a pattern, or a topic that is not known here yet, means what the user is denied",
        [
            Edit(
                f"{INSIDE}.deciding:_meets",
                "if policy.match is Match.ALL or (resource.name == UNKNOWN and not policy.allows):",
                "if policy.match is Match.ALL:",
            )
        ],
        [f"{GATE}.test_a_denial_wins_wherever_it_stands"],
    ),
    Mutant(
        "one-refused-call-logs-in-for-itself",
        "of many calls whose login ended all but the first fail for good",
        [
            Edit(
                "dledger_proto.login.tokens:Tokens.refused",
                "return bool(self._credentials.user)",
                "return token is not None",
            )
        ],
        ["unit.login.test_tokens.test_calls_whose_login_ended_are_tried_again_all_of_them:8"],
    ),
    Mutant(
        "the-gate-looks-at-whatever-is-sent",
        "millions of names in one call keep a member busy before anybody counts them",
        [Edit(f"{INSIDE}.rules:_check_count", "if count > most:", "if False:")],
        [f"{TABLE}.test_the_gate_looks_at_no_more_than_a_call_takes"],
    ),
    Mutant(
        "a-member-that-lags-denies-a-secret",
        "a client whose secret was changed takes the no of one member for final, and stops",
        [
            Edit(
                "dledger_broker.security.logins:Logins.finish",
                "if not proof.is_current:",
                "if False:",
            )
        ],
        [
            "unit.security.test_logins."
            "test_a_member_that_cannot_confirm_what_it_knows_takes_a_secret_and_denies_none"
        ],
    ),
    Mutant(
        "tokens-of-one-user-push-out-those-of-others",
        "a user that logs in again and again ends the logins of everybody else",
        [
            Edit(
                "dledger_broker.security.logins:Logins.finish",
                "self._forget(next(iter(self._of_users[most])))",
                "self._forget(next(iter(self._tokens)))",
            )
        ],
        ["unit.security.test_logins.test_a_user_with_many_connections_pushes_out_its_own_tokens"],
    ),
    Mutant(
        "the-audit-hides-whose-secret-is-guessed",
        "somebody tries secrets of a user for days, and no line names the user",
        [
            Edit(
                "dledger_broker.security.logins:Logins.asked_user",
                'return "" if proof is None else proof.asked.user',
                'return ""',
            )
        ],
        ["unit.security.test_logins.test_the_audit_names_the_user_whose_secret_somebody_guesses"],
    ),
    Mutant(
        "the-audit-hides-what-strangers-try",
        "lines of refusals say who came and from where, and not what for",
        [
            Edit(
                "dledger_broker.security.gate:Gate.caller",
                'self.audit.refused("call", peer, "", error, wished=call)',
                'self.audit.refused("call", peer, "", error, wished="")',
            )
        ],
        ["unit.security.test_gate.test_the_audit_says_which_call_was_refused"],
    ),
)
