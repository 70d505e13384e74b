"""`dledger restore`: the data folders of a new cluster, made of a snapshot."""

from pathlib import Path
from random import SystemRandom
from typing import Annotated

import typer

from dledger.files import OsFileSystem
from dledger.snapshot.restoring import NoSnapshot, manifest_of, restore_to
from dledger.types import MemberId
from dledger_broker.cli.offline.repair import find_damage
from dledger_broker.cli.output import CommandFailed, JsonFlag, bad_input, print_rows
from dledger_proto.errors import DledgerError
from dledger_proto.exit_codes import Exit
from dledger_proto.limits import GROUP_NAME_LENGTH_MAX
from dledger_proto.names import check_name


def restore(
    snapshot: Annotated[Path, typer.Argument(help="The folder of a snapshot.", show_default=False)],
    to: Annotated[
        Path, typer.Argument(help="Where the data folders are made.", show_default=False)
    ],
    cluster: Annotated[str, typer.Option(help="Name of the new cluster; not that of the old one.")],
    as_json: JsonFlag = False,
) -> None:
    """Make the data folders of a new cluster from a snapshot, one for each member.

    The new members have the names of the old ones. Move each TO/MEMBER/data/GROUP to its machine,
    write the configuration of the new cluster, and start all members. The new cluster has the
    messages, offsets, consumer groups and settings of the moment of the snapshot. Of a cluster with
    several broker groups, restore a snapshot of each, to the same TO and the same --cluster.

    Restore once, and all members together: folders of two restores do not make a group.
    """
    fs = OsFileSystem()
    try:
        manifest = manifest_of(fs, str(snapshot))
        check_name("--cluster", cluster, GROUP_NAME_LENGTH_MAX)
    except NoSnapshot as error:
        raise CommandFailed(str(error), code=Exit.DAMAGED) from error
    except DledgerError as error:
        bad_input(str(error))
    if cluster == manifest.cluster:
        bad_input(
            f"--cluster: {cluster} is the cluster of the snapshot",
            "choose another name: members of the old cluster may still run",
        )
    folders = {
        MemberId(member): to / member / "data" / manifest.group for member in manifest.members
    }
    taken = [folder for folder in folders.values() if folder.exists()]
    if taken:
        bad_input(f"{taken[0]} exists", "restore to a new folder")
    try:
        restore_to(
            fs, str(snapshot), cluster,
            {member: str(folder) for member, folder in folders.items()}, SystemRandom(),
        )  # fmt: skip
    except NoSnapshot as error:
        raise CommandFailed(str(error), code=Exit.DAMAGED) from error
    problems = [problem for folder in folders.values() for problem in find_damage(folder)]
    if problems:
        raise CommandFailed("; ".join(problems), "the snapshot is damaged", code=Exit.DAMAGED)
    rows = [
        {
            "cluster": cluster,
            "group": manifest.group,
            "member": member,
            "last_index": manifest.last_index,
            "folder": str(folder),
        }
        for member, folder in folders.items()
    ]
    print_rows(rows, ("cluster", "group", "member", "last_index", "folder"), as_json=as_json)
