"""A Ray cluster of some nodes in a process of its own, which other tests control.

Run as ``python -m tests.engines.nodes FOLDER COUNT``. It has its home, its files and its token in
the folder, and prints its address. A line ``remove N`` on standard input ends a node, ``add``
starts another one; each is answered by a line. At the end of standard input all of it ends.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Any

__all__ = ["SETTINGS"]

SETTINGS = {
    "RAY_AUTH_MODE": "token",
    "RAY_grpc_client_keepalive_time_ms": "5000",
    "RAY_grpc_client_keepalive_timeout_ms": "5000",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # A cluster of a test is not to wait: who is gone is gone.
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    # Processes are started when there is a task for them; most drivers have one or two.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
}

NODE: dict[str, Any] = {
    "num_cpus": 1,
    "object_store_memory": 80 * 2**20,
    "include_log_monitor": False,
    "no_monitor": True,
}


def main(folder: Path, count: int) -> None:
    """Run a cluster as long as somebody listens."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    token = folder / "token"
    token.write_text(secrets.token_hex(16))
    home = folder / "home"
    (folder / "ray").mkdir()
    home.mkdir()
    os.environ |= {**SETTINGS, "HOME": str(home), "RAY_TMPDIR": str(folder)}
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)
    from ray.cluster_utils import Cluster

    head = {**NODE, "include_dashboard": False, "temp_dir": str(folder / "ray")}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(**NODE) for _ in range(count - 1)]
    cluster.wait_for_nodes()
    print(cluster.address, file=answers, flush=True)
    try:
        for line in sys.stdin:
            word, _, number = line.strip().partition(" ")
            if word == "add":
                nodes.append(cluster.add_node(**NODE))
                cluster.wait_for_nodes()
            elif word == "remove":
                cluster.remove_node(nodes.pop(int(number)), allow_graceful=False)
            print(word, file=answers, flush=True)
    finally:
        for node in [*nodes, cluster.head_node]:
            node.kill_all_processes(check_alive=False, allow_graceful=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
