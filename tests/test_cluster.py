"""Tests of d2lpar/cluster.py and _hub.py: hosts with links of their own, on one machine.

On a machine that cannot make a cluster they are skipped, and the last lines of `make test` say so (`conftest.py`).
No time has an upper bound here: load cannot break a test.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch

from conftest import NO_CLUSTER
from d2lpar.cluster import Cluster, ClusterError
from d2lpar.launch import RankGroup
from d2lpar.pages.cluster_results import what_is_missing
from d2lpar.pages.kill_tests import Kill, PowerOff, differing, kill_test
from d2lpar.pages.results import stored_results
from helpers.on_hosts import seconds_of_allreduce, seconds_of_message, shares
from helpers.train_script import script_on_few_images
from record_cluster import CHAPTERS, run_cells

needs_cluster = pytest.mark.skipif(bool(what_is_missing()), reason=f"{NO_CLUSTER}: {what_is_missing()}")
HELPS = ("unshare", "nsenter")


def left_behind() -> list[str]:
    family = [p.info for p in psutil.process_iter(["ppid", "name", "cmdline", "status"])]
    return [" ".join(p["cmdline"] or [p["name"]]) for p in family if p["ppid"] == os.getpid() and p["name"] in HELPS]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2, mbit=500) as made:
        yield made
    assert left_behind() == []


@needs_cluster
def test_a_host_has_a_name_an_address_and_process_numbers_of_its_own_and_shares_the_files(cluster: Cluster, tmp_path: Path) -> None:
    Path(tmp_path, "shared").write_text("read on host 1")
    assert [cluster.run(i, "hostname") for i in range(2)] == ["host0\n", "host1\n"]
    assert "10.0.0.2/24" in cluster.run(1, "ip", "-brief", "-4", "address", "show", "eth0")
    assert cluster.run(1, "cat", str(tmp_path / "shared")) == "read on host 1"
    assert cluster.run(1, "pwd").strip() == os.getcwd()
    assert cluster.run(0, "getent", "hosts", "host1").split() == ["10.0.0.2", "host1"]
    sleeping = cluster.popen(1, "sleep", "1000")
    seen = ["sh", "-c", "cat /proc/[0-9]*/comm"]
    while "sleep\n" not in cluster.run(1, *seen):
        time.sleep(0.05)
    assert "sleep\n" not in cluster.run(0, *seen) and "python" not in cluster.run(1, *seen)
    sleeping.kill()
    sleeping.wait()


@needs_cluster
def test_a_program_whose_process_is_terminated_or_killed_ends(cluster: Cluster) -> None:
    for end in (subprocess.Popen.terminate, subprocess.Popen.kill):
        program, family = cluster.popen(1, "sleep", "1000"), []
        while "sleep" not in [process.name() for process in family]:
            time.sleep(0.05)
            family = psutil.Process(program.pid).children(recursive=True)
        end(program)
        program.wait()
        while any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family):
            time.sleep(0.05)


@needs_cluster
def test_a_forked_process_that_stays_does_not_keep_the_cluster_open() -> None:
    with Cluster(1) as cluster:
        if not (child := os.fork()):
            time.sleep(100)
            os._exit(0)
        begin = time.monotonic()
        cluster.close()
        assert time.monotonic() - begin < 50
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@needs_cluster
def test_a_program_that_fails_on_a_host_says_so(cluster: Cluster) -> None:
    with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
        cluster.run(0, "sh", "-c", "exit 3")


@needs_cluster
@pytest.mark.parametrize("hosts", [2, 3])
def test_ranks_on_hosts_get_the_bits_of_ranks_without_and_each_sends_the_bytes_of_a_ring(hosts: int) -> None:
    values = 300_000 // hosts * hosts
    with RankGroup(hosts, "gloo") as ranks:
        without = ranks.run(shares, values)
    with Cluster(hosts, mbit=500) as cluster, RankGroup(hosts, cluster=cluster) as ranks:
        ranks.run(shares, 8)  # all connections are made
        before = [cluster.bytes_sent(i) for i in range(hosts)]
        with_links = ranks.run(shares, values)
        sent = [cluster.bytes_sent(i) - b for i, b in enumerate(before)]
    assert all(torch.equal(a, b) for a, b in zip(with_links, without)) and len(with_links) == hosts
    assert torch.equal(without[0], torch.arange(values, dtype=torch.float64) * sum(range(1, hosts + 1)))
    for one in sent:
        assert 1.00 <= one / (2 * (hosts - 1) / hosts * 8 * values) <= 1.03, sent


@needs_cluster
def test_nothing_is_faster_than_the_link() -> None:
    with Cluster(2, mbit=100) as cluster, RankGroup(2, cluster=cluster) as ranks:
        ranks.run(seconds_of_allreduce, 8)
        for mbit in (100, 20):
            for values in (100_000, 250_000):
                assert min(ranks.run(seconds_of_allreduce, values)) >= 0.95 * 4 * values / (mbit * 1e6 / 8)
            cluster.set(mbit=20)  # after the rate with which it was made


@needs_cluster
def test_a_set_rate_holds_at_once_for_one_host_or_all(cluster: Cluster) -> None:
    with RankGroup(2, cluster=cluster) as ranks:
        ranks.run(seconds_of_allreduce, 8)
        cluster.set(mbit=10, host=1)
        assert min(ranks.run(seconds_of_allreduce, 125_000)) >= 0.95 * 0.4
        cluster.set(mbit=5)
        assert min(ranks.run(seconds_of_allreduce, 125_000)) >= 0.95 * 0.8
        assert cluster.links == [(5, 0.0, 0.0)] * 2
        cluster.set(mbit=50, host=0)
        assert min(ranks.run(seconds_of_allreduce, 125_000)) >= 0.95 * 0.8  # by the link of host 1
        cluster.set(loss=0.0)
        assert cluster.links == [(50, 0.0, 0.0), (5, 0.0, 0.0)], "what is not given stays"


@needs_cluster
def test_a_message_takes_its_delay_each_way_and_lost_packets_are_sent_again(cluster: Cluster) -> None:
    with RankGroup(2, cluster=cluster) as ranks:
        ranks.run(seconds_of_message)
        cluster.set(delay_ms=30)
        assert min(ranks.run(seconds_of_message)) >= 0.060
        cluster.set(delay_ms=0, loss=0.1)
        assert torch.equal(ranks.run(shares, 20_000)[1], torch.arange(20_000, dtype=torch.float64) * 3)


@needs_cluster
def test_hosts_with_a_delay_from_the_start_talk(tmp_path: Path) -> None:
    with Cluster(3, mbit=100, delay_ms=5) as cluster, RankGroup(3, cluster=cluster) as ranks:
        assert torch.equal(ranks.run(shares, 9)[2], torch.arange(9, dtype=torch.float64) * 6)


@needs_cluster
def test_an_unplugged_link_holds_up_an_allreduce_until_it_is_plugged_in(cluster: Cluster) -> None:
    with RankGroup(2, cluster=cluster) as ranks:
        ranks.run(shares, 8)
        cluster.unplug(1)
        plugging = threading.Timer(1.5, cluster.plug, [1])
        begin = time.monotonic()
        plugging.start()
        assert ranks.run(shares, 3)[0].tolist() == [0.0, 3.0, 6.0]
        assert time.monotonic() - begin > 1.4


LISTENS = """
import socket, sys
server = socket.create_server(("10.0.0.1", 2000))
print("listens", flush=True)
other = server.accept()[0]
other.settimeout(2)
print(other.recv(5).decode(), flush=True)
try:
    print("goodbye" if other.recv(5) == b"" else "more")
except ConnectionResetError:
    print("goodbye")
except TimeoutError:
    print("silence")
"""
SPEAKS = """
import socket, time
connection = socket.create_connection(("host0", 2000))
connection.sendall(b"hello")
time.sleep(1000)
"""


@needs_cluster
@pytest.mark.parametrize("death, heard", [(lambda cluster, program: os.kill(psutil.Process(program.pid).children(recursive=True)[-1].pid, signal.SIGKILL), "goodbye"),
                                          (lambda cluster, program: cluster.power_off(1), "silence")], ids=["killed", "power off"])
def test_a_killed_program_says_goodbye_and_a_host_without_power_does_not(cluster: Cluster, death: Callable, heard: str) -> None:
    server = cluster.popen(0, sys.executable, "-c", LISTENS, stdout=subprocess.PIPE, text=True)
    assert server.stdout and server.stdout.readline() == "listens\n"
    speaker = cluster.popen(1, sys.executable, "-c", SPEAKS)
    assert server.stdout.readline() == "hello\n"
    death(cluster, speaker)
    assert server.communicate()[0] == f"{heard}\n"
    speaker.wait()


@needs_cluster
def test_a_host_that_was_off_is_off_until_it_is_on_again(cluster: Cluster) -> None:
    cluster.power_off(1)
    for action in (lambda: cluster.power_off(1), lambda: cluster.run(1, "true"), lambda: cluster.bytes_sent(1), lambda: cluster.network(3)):
        with pytest.raises(ValueError, match="host1 is off"):
            action()
    cluster.set(mbit=100)
    cluster.power_on(1)
    with pytest.raises(ValueError, match="host1 is on"):
        cluster.power_on(1)
    with RankGroup(2, cluster=cluster) as ranks:
        assert ranks.run(shares, 2)[1].tolist() == [0.0, 3.0]


HOLDS = """
import subprocess, sys
from d2lpar.cluster import Cluster
cluster = Cluster(2, mbit=10, delay_ms=1)
programs = [cluster.popen(i, "sleep", "1000", stdout=subprocess.DEVNULL) for i in range(2)]
print("ready", flush=True)
sys.stdin.read()
"""


@needs_cluster
def test_nothing_is_left_when_the_maker_is_killed() -> None:
    maker = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert maker.stdout and maker.stdout.readline() == "ready\n"
    family: list[psutil.Process] = []
    while [process.name() for process in family].count("sleep") < 2:
        time.sleep(0.05)
        family = psutil.Process(maker.pid).children(recursive=True)
    assert any(process.name().startswith("python") for process in family)  # the hub
    maker.kill()
    maker.communicate()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    assert "port0" not in psutil.net_if_addrs()


@needs_cluster
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="who is not root takes this way in all tests")
def test_root_that_is_refused_takes_a_user_namespace_and_its_ranks_do_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("d2lpar.cluster.os.geteuid", lambda: 1000)
    with Cluster(2, mbit=500) as cluster, RankGroup(2, cluster=cluster) as ranks:
        assert len(cluster.network(0)) == 2
        assert ranks.run(shares, 2)[1].tolist() == [0.0, 3.0]


@pytest.mark.parametrize("wrong", [{"hosts": 0}, {"hosts": 251}, {"mbit": 0}, {"mbit": float("nan")}, {"mbit": float("inf")}, {"delay_ms": -1},
                                   {"delay_ms": float("nan")}], ids=str)
def test_links_that_cannot_be_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="got .*" + str(*wrong.values())):
        Cluster(**wrong)


@needs_cluster
def test_a_wrong_change_changes_nothing(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="loss=1"):
        cluster.set(mbit=10, loss=1)
    assert cluster.links == [(500, 0.0, 0.0)] * 2
    with pytest.raises(ValueError, match="got backend='nccl'"):
        RankGroup(2, "nccl", cluster)


def test_what_a_machine_lacks_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def message() -> str:
        with pytest.raises(ClusterError) as caught:
            Cluster(1)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    with monkeypatch.context() as here:
        here.setattr(sys, "platform", "darwin")
        assert "needs Linux" in message()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "the command unshare (package util-linux) and nsenter (package util-linux) and setpriv (package util-linux) and ip (package iproute2)" in message()
    for name in ("nsenter", "setpriv", "ip", "tc", "hostname", "unshare"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    assert "this machine makes no namespaces (unshare: unshare failed: Operation not permitted)" in message()
    assert "privileged" in message() or "apparmor" in message()
    assert left_behind() == []


def test_only_a_host_of_a_cluster_can_be_switched_off(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only a host of a cluster can be switched off"):
        kill_test(tmp_path / "run", kills=[PowerOff(1)])
    assert not (tmp_path / "run").exists()


@needs_cluster
@pytest.mark.parametrize("kill", [Kill(1, 0), PowerOff(1, 0)], ids=["rank", "host"])
def test_rank_0_which_reports_what_it_notices_is_not_killed(cluster: Cluster, tmp_path: Path, kill: Kill | PowerOff) -> None:
    with pytest.raises(ValueError, match="so it must stay"):
        kill_test(tmp_path / "run", kills=[kill], cluster=cluster)
    assert not (tmp_path / "run").exists()


@needs_cluster
@pytest.mark.weekly  # the chapter's cell that does the same is skipped daily
@pytest.mark.parametrize("kill", [Kill(12, 1), PowerOff(12)], ids=["killed", "power off"])
def test_after_a_kill_and_after_a_power_failure_the_run_ends_with_the_same_bits(tmp_path: Path, kill: Kill | PowerOff,
                                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    options, script = ("--batch-size=32", "--epochs=2"), script_on_few_images(tmp_path, {"seconds=120": "seconds=15"})
    uninterrupted = kill_test(tmp_path / "uninterrupted", *options, script=script)
    with Cluster(2, mbit=200) as cluster:
        ended = kill_test(tmp_path / "killed", *options, kills=[kill], cluster=cluster, script=script)
    assert (ended.status, differing(ended.state, uninterrupted.state)) == (0, []), ended.log
    assert len(ended.noticed_s) == len(ended.recovered_s) == 1
    if isinstance(kill, PowerOff):
        assert ended.noticed_s[0] > 14, "a silent death is noticed when the time limit is up"


MEETS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1)
dist.all_reduce(x)
print(f"met {int(x)}\\n", end="", flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@needs_cluster
@pytest.mark.weekly
@pytest.mark.parametrize("endpoint, interface, statuses, met", [("host0", "eth0", [0, 0], 2), ("host0", None, [1, 1], 0), ("10.0.0.1", "eth0", [None, None], 0)],
                         ids=["name and interface", "name", "address"])
def test_machines_that_call_themselves_127_0_1_1_need_a_name_and_an_interface(cluster: Cluster, tmp_path: Path, endpoint: str, interface: str | None,
                                                                              statuses: list, met: int) -> None:
    (program := tmp_path / "meets.py").write_text(MEETS)
    for own, other in ((0, 1), (1, 0)):
        lines = rf"127.0.0.1 localhost\n127.0.1.1 host{own}\n10.0.0.{other + 1} host{other}\n"
        cluster.run(own, "sh", "-c", f"printf '{lines}' > /etc/hosts")
    variables = os.environ | {"OMP_NUM_THREADS": "1"} | ({"GLOO_SOCKET_IFNAME": interface} if interface else {})
    words = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--rdzv-id=meet", "--rdzv-backend=c10d",
             f"--rdzv-endpoint={endpoint}:29400", str(program)]
    with open(tmp_path / "log", "wb") as log:
        agents = [cluster.popen(i, *words, stdout=log, stderr=log, env=variables) for i in range(2)]
    end = time.monotonic() + (240 if statuses[0] is not None else 30)
    while time.monotonic() < end and any(agent.poll() is None for agent in agents):
        time.sleep(0.2)
    said = (tmp_path / "log").read_text()
    assert ([agent.poll() for agent in agents], said.count("met 2")) == (statuses, met), said
    assert bool(re.search(r"connectFullMesh failed.*Connection refused, remote=\[127\.0\.1\.1\]", said)) == (statuses == [1, 1]), said
    for host in range(2):
        cluster.power_off(host)
    for agent in agents:
        agent.wait()


def test_where_no_cluster_can_be_made_the_chapter_shows_stored_results_and_says_so(monkeypatch: pytest.MonkeyPatch,
                                                                                    capsys: pytest.CaptureFixture) -> None:
    what_is_missing.cache_clear()
    monkeypatch.setattr("d2lpar.cluster.shutil.which", lambda name: None if name == "tc" else name)
    try:
        for chapter in CHAPTERS:
            run_cells(chapter)
    finally:
        what_is_missing.cache_clear()
    said = capsys.readouterr().out
    stored = stored_results("cluster")
    about = stored["about"]
    line = (f"STORED, measured on {about['machine']}, {about['date']}. Not measured here: a cluster needs the command tc (package iproute2)"
            if sys.platform == "linux" else "STORED, measured on ")
    assert said.count(line) == len(stored["results"])
    assert f"naive {stored['results']['eight hosts'][0]:.2f} s" in said
