import asyncio, sys, os, time, struct, zlib, collections, grpc, uvloop, lmdb, logging
import r_pb2, r_pb2_grpc
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport
import pysyncobj.syncobj as so

logging.basicConfig(level=logging.WARNING)
HDR = struct.Struct("<IIQQ")


class Journal:
    def __init__(s, path):
        s.f = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
        s.ents = []
        s.buf = []
        s.dirty = False
        s.pos = 0
        s.meta = (0, None)
        s.c = 1
        s.syncs = 0

    def add(s, cmd, idx, term):
        if s.ents and idx <= s.ents[-1][1]:
            k = idx - s.ents[0][1]
            if s.ents[k][2] == term:
                s.dups = getattr(s, "dups", 0) + 1
                return
            del s.ents[k:]
        s.ents.append((cmd, idx, term))
        s.buf.append(HDR.pack(len(cmd), zlib.crc32(cmd), idx, term))
        s.buf.append(cmd)
        s.dirty = True

    def take(s):
        b = s.buf
        s.buf = []
        s.dirty = False
        return b

    def write_sync(s, b):
        os.writev(s.f, b) if len(b) < 1000 else os.write(s.f, b"".join(b))
        os.fdatasync(s.f)
        s.syncs += 1

    def clear(s):
        s.ents = []

    def deleteEntriesFrom(s, k):
        pass

    def deleteEntriesTo(s, k):
        s.ents = s.ents[k:]

    def __getitem__(s, k):
        return s.ents[k]

    def __len__(s):
        return len(s.ents)

    def _destroy(s):
        pass

    def setRaftCommitIndex(s, i):
        s.c = i

    def getRaftCommitIndex(s):
        return s.c

    def setCurrentTerm(s, t, v):
        s.meta = (t, v)
        s.dirty = True

    def getCurrentTerm(s):
        return s.meta[0]

    def getVotedForNodeId(s):
        return s.meta[1]

    def onOneSecondTimer(s):
        pass


class Tr(Transport):
    def __init__(s, selfid):
        super().__init__(None, None, None)
        s.selfid = selfid
        s.out = []

    def send(s, node, m):
        s.out.append((node.id, m))
        return True

    def addNode(s, n):
        pass

    def dropNode(s, n):
        pass


class RN(SyncObj):
    def setup(s, apply):
        s._apply = apply

    def _SyncObj__doApplyCommand(s, cmd):
        if cmd[0] == 0:
            return s.__dict__["_apply"](cmd)


def enc(m, me):
    t = m["type"]
    o = r_pb2.RaftMsg(type=t)
    setattr(o, "from", me)
    if "term" in m:
        o.term = m["term"]
    if t == "append_entries":
        o.commit = m["commit_index"]
        o.prev_idx = m["prevLogIdx"]
        o.prev_term = m["prevLogTerm"]
        for c, i, te in m["entries"]:
            o.entries.add(command=c, index=i, term=te)
    elif t == "request_vote":
        o.last_idx = m["last_log_index"]
        o.last_term = m["last_log_term"]
    elif t == "next_node_idx":
        o.next_idx = m["next_node_idx"]
        o.reset = m["reset"]
        o.success = m["success"]
    return o


def dec(o):
    t = o.type
    if t == "append_entries":
        return dict(
            type=t,
            term=o.term,
            commit_index=o.commit,
            prevLogIdx=o.prev_idx,
            prevLogTerm=o.prev_term,
            entries=[(e.command, e.index, e.term) for e in o.entries],
        )
    if t == "request_vote":
        return dict(type=t, term=o.term, last_log_index=o.last_idx, last_log_term=o.last_term)
    if t == "response_vote":
        return dict(type=t, term=o.term)
    return dict(type=t, next_node_idx=o.next_idx, reset=o.reset, success=o.success)


class Svc(r_pb2_grpc.RServicer):
    def __init__(s, b):
        s.b = b

    async def Raft(s, it, ctx):
        async for m in it:
            s.b.inbox.append(m)
            s.b.wake.set()
        return r_pb2.Empty()

    async def Produce(s, it, ctx):
        q = asyncio.Queue()

        async def rd():
            async for m in it:
                s.b.props.append((m, q))
                s.b.wake.set()
            await q.put(None)

        t = asyncio.create_task(rd())
        n = 0
        while True:
            a = await q.get()
            if a is None:
                break
            yield a

    async def Leader(s, r, ctx):
        return r_pb2.Ack(ok=s.b.rn._isLeader())


class B:
    def __init__(s, me, ports):
        s.me = me
        s.ports = ports
        s.inbox = collections.deque()
        s.props = collections.deque()
        s.wake = asyncio.Event()
        s.outq = {}
        s.base = 0
        s.applied = 0
        s.acks = []

    async def peer(s, p):
        q = s.outq[p] = asyncio.Queue()
        n = Node(p)
        while True:
            try:
                ch = grpc.aio.insecure_channel(
                    "127.0.0.1:" + p,
                    options=[
                        ("grpc.max_send_message_length", -1),
                        ("grpc.min_reconnect_backoff_ms", 100),
                        ("grpc.initial_reconnect_backoff_ms", 100),
                    ],
                )
                await ch.channel_ready()
                call = r_pb2_grpc.RStub(ch).Raft()
                s.rn._SyncObj__connectedNodes.add(n)
                while True:
                    m = await q.get()
                    await call.write(m)
            except Exception as e:
                print("peer", p, e)
                s.rn._SyncObj__connectedNodes.discard(n)
                await asyncio.sleep(0.2)

    async def main(s):
        s.j = Journal("./data/j%s" % s.me)
        so.createJournal = lambda f: s.j
        s.tr = Tr(s.me)
        s.rn = RN(
            Node(s.me),
            [Node(p) for p in s.ports if p != s.me],
            conf=SyncObjConf(
                autoTick=False,
                appendEntriesUseBatch=False,
                raftMinTimeout=1.0,
                raftMaxTimeout=2.0,
                appendEntriesPeriod=0.1,
                appendEntriesBatchSizeBytes=1 << 23,
                logCompactionMinEntries=1 << 60,
                logCompactionMinTime=1 << 30,
                leaderFallbackTimeout=5,
            ),
            transport=s.tr,
        )
        s.rn.__dict__["_apply"] = s.apply
        s.env = lmdb.open("./data/db%s" % s.me, map_size=1 << 32, sync=False)
        sv = grpc.aio.server(
            options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        )
        r_pb2_grpc.add_RServicer_to_server(Svc(s), sv)
        sv.add_insecure_port("127.0.0.1:" + s.me)
        await sv.start()
        for p in s.ports:
            if p != s.me:
                asyncio.create_task(s.peer(p))
        loop = asyncio.get_running_loop()
        nodes = {p: Node(p) for p in s.ports}
        last = time.time()
        it = 0
        while True:
            if not s.inbox and not s.props:
                try:
                    await asyncio.wait_for(s.wake.wait(), 0.03)
                except asyncio.TimeoutError:
                    pass
            s.wake.clear()
            it += 1
            while s.inbox:
                m = s.inbox.popleft()
                n = nodes[getattr(m, "from")]
                d = dec(m)
                ni = s.rn._SyncObj__raftNextIndex
                old = ni.get(n)
                s.tr._onMessageReceived(n, d)
                if (
                    d["type"] == "next_node_idx"
                    and not d["reset"]
                    and old is not None
                    and ni.get(n, 0) < old
                ):
                    ni[n] = old
            # group commit: merge proposals
            if s.props and s.rn._isLeader():
                size = 0
                batch = []
                while s.props and size < (4 << 20):
                    m, q = s.props.popleft()
                    batch.append((m, q))
                    size += len(m.batch)
                body = b"".join(
                    [b"\0"]
                    + [struct.pack("<II", len(m.batch), m.count) + m.batch for m, q in batch]
                )
                s.rn._applyCommand(body, lambda res, err, batch=batch: s.done(batch, res, err))
            s.rn.doTick(0)
            out = s.tr.out
            s.tr.out = []
            later = []
            for p, m in out:
                if m["type"] == "append_entries":
                    s.outq[p].put_nowait(enc(m, s.me))
                else:
                    later.append((p, m))
            if s.j.dirty:
                b = s.j.take()
                await loop.run_in_executor(None, s.j.write_sync, b)
            for p, m in later:
                s.outq[p].put_nowait(enc(m, s.me))
            acks = s.acks
            s.acks = []
            for q, a in acks:
                q.put_nowait(a)
            if time.time() - last > 5:
                print(
                    s.me,
                    "lead" if s.rn._isLeader() else "",
                    "iters",
                    it,
                    "applied",
                    s.applied,
                    "syncs",
                    s.j.syncs,
                    "dups",
                    getattr(s.j, "dups", 0),
                    file=sys.stderr,
                )
                last = time.time()

    def done(s, batch, res, err):
        base = res
        for m, q in batch:
            s.acks.append((q, r_pb2.Ack(id=m.id, base=base or 0, ok=err == 0)))

    def apply(s, cmd):
        # build consumequeue: one LMDB record per batch
        pos = 1
        n = 0
        with s.env.begin(write=True) as t:
            while pos < len(cmd):
                ln, c = struct.unpack_from("<II", cmd, pos)
                t.put(struct.pack(">IQ", 0, s.base + n), struct.pack("<QII", s.applied, ln, c))
                pos += 8 + ln
                n += c
        b = s.base
        s.base += n
        s.applied += n
        return b


uvloop.install()
asyncio.run(B(sys.argv[1], sys.argv[2].split(",")).main())
