"""Training on a cluster, compared with one process."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.engines.running import Nodes
from tests.engines.tasks import done, first_only, name_of
from tests.training.runs import small_options, write_drawings
from tfrtool.engines.ray_cluster import RayCluster
from tfrtool.engines.ray_processes import RayProcesses
from tfrtool.training.train_report import EpochReport

pytestmark = [pytest.mark.tf]
pytest.importorskip("ray")

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"engine": "ray"}, "requires --out"),
    ({"engine": "ray", "out": "run", "strategy": "one"}, "--strategy one and --engine ray"),
    ({"engine": "ray", "out": "run", "strategy": "mirrored"}, "--strategy mirrored and"),
    ({"engine": "ray", "out": "run", "compare": True}, "--compare"),
    ({"engine": "ray", "out": "run", "callbacks": [1]}, "callbacks"),
    ({"engine": "ray", "out": "run", "recipe": "naive"}, "--recipe naive and --engine ray"),
    ({"engine": "ray", "out": "run", "model": lambda *_: None}, "the model can't be sent"),
    ({"workers": 2}, "--workers requires a cluster"),
    ({"engine_address": "127.0.0.1:1"}, "--engine-address requires"),
]


def _workers(nodes: Nodes) -> list[int]:
    """Return the processes of these nodes that train."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            trains = b"ray::Worker" in path.read_bytes()
            if trains and str(nodes.folder).encode() in path.with_name("environ").read_bytes():
                found.append(int(path.parent.name))
    return found


@pytest.mark.several
def test_two_workers_train_and_survive_a_death(nodes: Nodes, tmp_path: Path) -> None:
    """What the first worker reports arrives here, once; a killed worker restarts the run."""
    drawings = write_drawings(tmp_path / "drawings")
    words = small_options(drawings, optimizer="sgd", epochs=4)
    plans: list[Any] = []
    epochs: list[Any] = []
    reasons: list[str] = []
    where: dict[str, Any] = {"engine": "ray", "engine_address": nodes.address, "workers": 2}
    with pytest.raises(tfrtool.UsageError, match="9 workers: expected a CPU for each, found"):
        tfrtool.train(**words, out=tmp_path / "9", **where | {"workers": 9})

    def kill_once(epoch: EpochReport) -> None:
        epochs.append(epoch)
        if epoch.epoch == 2:
            os.kill(_workers(nodes)[-1], signal.SIGKILL)

    report = tfrtool.train(
        **words,
        out=tmp_path / "two",
        on_plan=plans.append,
        on_epoch=kill_once,
        on_restart=reasons.append,
        **where,
    )
    one = tfrtool.train(**words, out=tmp_path / "one")
    assert plans[-1] == report.plan
    assert tuple(epochs) == report.epochs
    assert [epoch.epoch for epoch in epochs] == [1, 2, 3, 4]
    assert len(reasons) == 1
    assert "restarting (1 of 3)" in reasons[0]
    plan = report.plan
    assert (plan.strategy, plan.workers, plan.worker) == ("multi-worker", 2, 0)
    losses = [epoch.val_loss for epoch in one.epochs]
    assert [epoch.val_loss for epoch in epochs] == pytest.approx(losses, rel=0.1)
    names = {path.name for path in (tmp_path / "two").iterdir()}
    assert names - {".tfrtool-lock"} == {path.name for path in (tmp_path / "one").iterdir()}


@pytest.mark.several
def test_a_worker_that_is_late(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says how many were in time."""
    with RayProcesses(cluster, 2, 300.0, done) as processes:
        processes.call(name_of, tmp_path)  # now both run, and only one can be late
        monkeypatch.setattr(processes, "_seconds", 5.0)
        with pytest.raises(tfrtool.ClusterError) as error:
            processes.call(first_only, tmp_path)
    facts = error.value.what, error.value.expected, error.value.found
    assert facts == ("a worker did not respond", "all 2 workers within 5 seconds", 1)


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_is_refused(words: dict[str, Any], message: str) -> None:
    """Options that don't apply with a cluster, or without one, are refused at once."""
    with pytest.raises(tfrtool.UsageError) as caught:
        tfrtool.train("nosuch", **{"model": "cnn", **words})
    assert message in str(caught.value)
    assert not os.path.lexists("run")


def test_workers_that_are_named_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """TF_CONFIG is made for the workers, and none is taken from here."""
    monkeypatch.setenv(
        "TF_CONFIG", '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'
    )
    with pytest.raises(tfrtool.UsageError, match="TF_CONFIG"):
        tfrtool.train("nosuch", model="cnn", engine="ray", out="run")
