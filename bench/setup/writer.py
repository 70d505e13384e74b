"""One plain writer: pwrite and fdatasync, again and again, into a file of its own.

`python bench/setup/writer.py FOLDER SECONDS SIZE` waits for a line, writes, prints bytes per
second. A process of its own that imports nothing, so that three of them begin together.
"""

import os
import sys
import time

FILE_SIZE = 2 << 30


def write(folder: str, seconds: float, size: int) -> float:
    """Write for so many seconds; return bytes per second."""
    data = os.urandom(size)
    path = os.path.join(folder, f"writer-{os.getpid()}")
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.posix_fallocate(fd, 0, FILE_SIZE)
        sys.stdin.readline()
        position = written = 0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            os.pwrite(fd, data, position)
            os.fdatasync(fd)
            written += size
            position += size
            if position + size > FILE_SIZE:
                # Reserved anew: overwriting what was written is cheaper than what we compare with.
                os.ftruncate(fd, 0)
                os.posix_fallocate(fd, 0, FILE_SIZE)
                position = 0
        return written / (time.perf_counter() - start)
    finally:
        os.close(fd)
        os.unlink(path)


if __name__ == "__main__":
    print(write(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
