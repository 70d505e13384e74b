import asyncio, grpc, sys, time, r_pb2, r_pb2_grpc, uvloop, statistics


async def main():
    ports = sys.argv[1].split(",")
    lead = None
    for _ in range(100):
        for p in ports:
            try:
                ch = grpc.aio.insecure_channel(
                    "127.0.0.1:" + p, options=[("grpc.max_send_message_length", -1)]
                )
                st = r_pb2_grpc.RStub(ch)
                if (await st.Leader(r_pb2.Empty(), timeout=1)).ok:
                    lead = st
                    break
            except Exception as e:
                pass
        if lead:
            break
        await asyncio.sleep(0.2)
    print("leader", p)
    # Which cases to run can be given: records in a batch, batches, window.
    given = [tuple(map(int, case.split(":"))) for case in sys.argv[2:]]
    for per, total, win in given or (
        (1, 3000, 1),
        (1, 20000, 256),
        (64, 6000, 64),
        (256, 3000, 16),
        (1000, 800, 8),
    ):
        call = lead.Produce()
        body = b"x" * (1024 * per)
        sem = asyncio.Semaphore(win)
        ts = {}
        lats = []

        async def rd():
            for _ in range(total):
                a = await call.read()
                lats.append(time.perf_counter() - ts.pop(a.id))
                sem.release()

        t0 = time.perf_counter()
        t = asyncio.create_task(rd())
        for i in range(total):
            await sem.acquire()
            ts[i] = time.perf_counter()
            await call.write(r_pb2.Append(batch=body, count=per, id=i))
        await t
        d = time.perf_counter() - t0
        await call.done_writing()
        lats.sort()
        print(
            f"per={per} win={win}: {total * per / d:.0f} msg/s {total * per * 1024 / d / 1e6:.1f} MB/s p50 {lats[len(lats) // 2] * 1e3:.2f}ms p99 {lats[int(len(lats) * 0.99)] * 1e3:.2f}ms"
        )


uvloop.install()
asyncio.run(main())
