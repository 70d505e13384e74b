"""Known bugs of whom a process takes for whom, by its certificate."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

LISTENER: Final = "dledger.raft.links.peer_listener:PeerListener"
LINKS: Final = "unit.raft_host.test_links_by_tls"
CALLEES: Final = "unit.security.test_callees"
ACCESS: Final = "unit.security.test_access"

TLS_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "any-certificate-opens-a-link",
        "a member's certificate is not compared with whom it says to be",
        [
            Edit(
                f"{LISTENER}.greet",
                "if self._tls is not None and name not in names:",
                "if False:",
            )
        ],
        [f'{LINKS}.test_nobody_else_is_accepted_as_a_member:"uvloop"'],
    ),
    Mutant(
        "greeting-of-a-client-is-read",
        "what a client says on the members' port is parsed",
        [
            Edit(
                f"{LISTENER}.is_stranger",
                "return self._tls is not None and not is_member_of(stream.peer_names, "
                "self._cluster)",
                "return False",
            )
        ],
        [f'{LINKS}.test_nobody_else_is_accepted_as_a_member:"uvloop"'],
    ),
    Mutant(
        "entries-go-to-anybody",
        "the dialler does not look whose certificate the listener has",
        [
            Edit(
                "dledger.raft.links.peer_link:_Connection.opened",
                "if self._peer_name and self._peer_name not in stream.peer_names:",
                "if False:",
            )
        ],
        [f"{LINKS}.test_a_dialler_wants_the_certificate_of_its_peer"],
    ),
    Mutant(
        "calls-go-to-anybody-on-the-host",
        "a member looks at the host alone of whom it calls, not at whose certificate it is",
        [Edit("dledger_proto.rpc.aio:open_channel", "if name:", "if False:")],
        [f'{CALLEES}.test_another_process_of_the_authority_gets_no_bytes:"another member"'],
    ),
    Mutant(
        "a-callee-is-any-member-of-the-group",
        "a member that calls the leader asks for the certificate of itself",
        [
            Edit(
                "dledger_broker.group.group_view:GroupNames.callee",
                "member_name(self.cluster, self.group, member)",
                "member_name(self.cluster, self.group, self.member)",
            )
        ],
        [f"{CALLEES}.test_whom_a_member_calls_has_the_name_of_its_group"],
    ),
    Mutant(
        "members-of-another-cluster-are-ours",
        "a certificate of a member of another cluster opens the calls between members",
        [
            Edit(
                "dledger_broker.security.access:Access.check_member",
                "if names is not None and not is_member_of(names, self.cluster):",
                "if names is not None and not any('/member/' in name for name in names):",
            )
        ],
        [f"{ACCESS}.test_only_members_make_calls_between_members"],
    ),
    Mutant(
        "a-member-registers-another",
        "a name server does not compare the certificate with who registers",
        [
            Edit(
                "dledger_namesrv.service:_check_proof",
                "if names is not None and said not in names:",
                "if names is not None and not names:",
            )
        ],
        [f"{ACCESS}.test_a_member_registers_under_its_own_name"],
    ),
    Mutant(
        "the-first-member-chooses-the-cluster",
        "a name server does not serve the cluster of its certificate",
        [
            Edit(
                "dledger_namesrv.service:NameServer.__init__",
                "cluster_of(settings, self._tls)",
                "settings.cluster",
            )
        ],
        [
            "unit.security.test_name_server_cluster."
            "test_the_first_that_registers_does_not_choose_the_cluster"
        ],
    ),
    Mutant(
        "the-old-authority-is-dropped-at-once",
        "a new certificate comes with the new authority's certificate alone",
        [
            Edit(
                "dledger_broker.security.authority:Authority.issue",
                "_bundle(folder, self._pem)",
                "self._pem",
            )
        ],
        ["unit.security.test_replaced_authority.test_no_connection_fails_on_the_way"],
    ),
    Mutant(
        "a-flood-pushes-members-out",
        "connections that say nothing take the place of members that prove themselves",
        [
            Edit(
                "dledger.raft.links.strangers:Strangers.put",
                "waiting = self._hosts[stage]",
                "waiting = self._hosts[Stage.SILENT]",
            )
        ],
        ["unit.raft_host.test_strangers.test_who_is_further_is_never_pushed_out_by_those_behind"],
    ),
    Mutant(
        "readers-end-when-files-change",
        "the channel of a running stream is closed when the files have changed",
        [
            Edit(
                "dledger_proto.rpc.aio:ChannelTable._retire",
                "if len(older) > OLDER_CHANNELS_MAX:",
                "if len(older) > 1:",
            )
        ],
        ["unit.security.test_channels.test_a_reader_outlives_changes_of_the_files"],
    ),
    Mutant(
        "half-changed-files-are-taken",
        "a new key is used with the old certificate",
        [
            Edit(
                "dledger_proto.network.tls:TlsFolder._look",
                "except TlsError as error:  # halfway through a change, or a mistake: look again",
                "except TlsError as error:\n            self._marks = self._stat()",
            )
        ],
        ["unit.security.test_tls_folder.test_changed_files_are_taken_when_they_fit_together"],
    ),
)
