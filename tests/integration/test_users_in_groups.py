"""Users by real members: what the control group decides reaches the other group."""

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest

from dledger_proto.errors import Code
from dledger_proto.login.derivation import keys_of
from dledger_proto.rpc.status import from_rpc_error
from dledger_proto.v1 import users_pb2 as pb
from dledger_proto.v1 import users_pb2_grpc
from tests.integration.cluster import Member, eventually
from tests.integration.test_groups import two_groups

SALT = b"0123456789abcdef"


def users_of(member: Member) -> "users_pb2_grpc.UsersAsyncStub":
    stub: users_pb2_grpc.UsersAsyncStub = users_pb2_grpc.UsersStub(member.channel)
    return stub


def user(name: str, *, is_admin: bool = False) -> pb.User:
    stored_key, server_key = keys_of("secret", SALT, 4_096)
    credentials = pb.UserCredentials(
        salt=SALT, rounds=4_096, stored_key=stored_key, server_key=server_key
    )
    return pb.User(name=name, is_admin=is_admin, credentials=credentials)


async def code_of(call: grpc.aio.UnaryUnaryCall) -> Code:  # type: ignore[type-arg]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value, write=True).code


def test_users_reach_every_group(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_groups(tmp_path) as groups:
            red, blue = groups["red"]["n1"], groups["blue"]["n2"]

            async def created() -> pb.UserReply | None:
                request = pb.PutUserRequest(user=user("root", is_admin=True), create=True)
                await users_of(blue).Put(request, timeout=5, metadata=blue.metadata)
                request = pb.PutUserRequest(user=user("alice"), create=True)
                return await users_of(blue).Put(request, timeout=5, metadata=blue.metadata)

            revision = (await eventually(created, "users")).revision

            async def has() -> bool:
                request = pb.PullUsersRequest(revision=revision)
                await users_of(blue).Pull(request, timeout=5, metadata=blue.metadata)
                return True

            await eventually(has, "the users in the other group")
            request = pb.DeleteUserRequest(name="alice")
            reply = await users_of(red).Delete(request, timeout=5, metadata=red.metadata)
            assert (reply.user.name, list(reply.missing_groups)) == ("alice", [])
            listed = await users_of(blue).List(
                pb.ListUsersRequest(), timeout=5, metadata=blue.metadata
            )
            assert [each.name for each in listed.users] == ["root"]
            assert not listed.users[0].HasField("credentials")
            followed = users_of(blue).Follow(
                pb.FollowUsersRequest(), timeout=5, metadata=blue.metadata
            )
            assert await code_of(followed) is Code.WRONG_GROUP
            pulled = users_of(red).Pull(pb.PullUsersRequest(), timeout=5, metadata=red.metadata)
            assert await code_of(pulled) is Code.WRONG_GROUP
            last = users_of(red).Delete(
                pb.DeleteUserRequest(name="root"), timeout=5, metadata=red.metadata
            )
            assert await code_of(last) is Code.INVALID_ARGUMENT

    asyncio.run(run())
