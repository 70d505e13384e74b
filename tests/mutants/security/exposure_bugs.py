"""Known bugs of which processes start without TLS."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

REACHED: Final = "unit.proto.test_exposure.test_what_other_machines_may_reach"

EXPOSURE_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "a-wildcard-is-this-machine-alone",
        "whoever listens on every address starts without TLS",
        [
            Edit(
                "dledger_proto.network.exposure:_is_loopback",
                "return ip.is_loopback",
                "return ip.is_loopback or ip.is_unspecified",
            )
        ],
        [f'{REACHED}:"{host}"' for host in ("0.0.0.0", "[::]", "[::ffff:0.0.0.0]", "0")],
    ),
    Mutant(
        "an-unknown-name-is-this-machine",
        "a host by a name that has no number here counts as loopback",
        [
            Edit(
                "dledger_proto.network.exposure:exposed_because",
                "if not numbers:",
                "if False:",
            )
        ],
        [f'{REACHED}:"gone"'],
    ),
    Mutant(
        "one-loopback-number-is-enough",
        "of a name that has several numbers only the first is looked at",
        [
            Edit(
                "dledger_proto.network.exposure:exposed_because",
                "for number in numbers if",
                "for number in list(numbers)[:1] if",
            )
        ],
        [f'{REACHED}:"both"'],
    ),
    Mutant(
        "what-others-are-told-is-not-looked-at",
        "a member is advertised to other machines and starts without TLS",
        [
            Edit(
                "dledger_broker.config.checks:_own_addresses",
                "for group in config.groups:",
                "for group in ():",
            )
        ],
        ["unit.config.test_security.test_each_own_address_counts"],
    ),
    Mutant(
        "a-name-server-lets-everybody-in",
        "a name server does not look at what it listens on",
        [
            Edit(
                "dledger_namesrv.service:unprotected",
                'why = "" if settings.tls_folder else exposed_because(settings.listen, resolve)',
                'why = ""',
            )
        ],
        ["unit.namesrv.test_service.test_what_a_name_server_may_listen_on"],
    ),
    Mutant(
        "connections-take-every-file",
        "strangers hold so many connections that the log cannot open its next segment",
        [
            Edit(
                "dledger_proto.rpc.aio:make_server",
                '("grpc.max_allowed_incoming_connections", connections_max()),',
                "",
            )
        ],
        [
            "unit.proto.test_open_files."
            "test_connections_beyond_the_bound_are_closed_and_those_before_are_served"
        ],
    ),
)
