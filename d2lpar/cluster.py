"""A cluster in a laptop: hosts with network links of a set bandwidth, on one Linux machine.

Each host is a set of the kernel's namespaces: a network, a hostname and process numbers of its own. The kernel limits
its link to the set rate (with a token bucket filter, `tc-tbf`), in both directions. All of it depends on one pipe: when
the program that made the cluster ends, in whatever way, and all processes that it has forked have ended, the kernel
ends the cluster and everything that runs in it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

MTU = 9000  # bytes in a packet, as in clusters ("jumbo frames"), 52 of which are headers; 14 more precede it
_HOLD = "read pid rest < /proc/self/stat; mount -t proc proc /proc 2>/dev/null; echo $pid; exec cat"
_AFTER_PARENT = "setpriv", "--pdeathsig", "TERM"  # nsenter passes no signal on, but its end
_KINDS = "--net", "--mount", "--uts", "--pid"


class ClusterError(RuntimeError):
    """This machine cannot make a cluster; the message says what it lacks."""


class HostLink(NamedTuple):
    """What a host's link is set to: a bandwidth, the delay of packets, and the share of packets that are lost."""

    mbit: float
    delay_ms: float
    loss: float


class _Namespaces:
    """A process that only holds namespaces. It ends when our end of its pipe is closed, and they end with it."""

    def __init__(self, *kinds: str, room: _Namespaces | None = None) -> None:
        self._kinds, self._room, self.has_user = kinds, room, "--user" in kinds
        command = self._from_room("unshare", *kinds, "--fork", "--kill-child", "sh", "-c", _HOLD)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)
        assert self.process.stdout is not None
        self.pid = self.process.stdout.readline().strip()  # in the room's numbers; inside, the process is number 1
        if not self.pid:
            raise ClusterError(_advice(self.process.communicate()[1].strip()))

    def command(self, *words: str) -> list[str]:
        """The command that runs `words` inside."""
        kinds = [kind for kind in self._kinds if kind != "--map-root-user"]
        keep = ["--preserve-credentials"] * self.has_user
        return self._from_room("nsenter", "--target", self.pid, *kinds, *keep, *_AFTER_PARENT, *words)

    def sh(self, script: str) -> str:
        done = subprocess.run(self.command("sh", "-ec", script), capture_output=True, text=True)
        if done.returncode:
            raise ClusterError(f"the network of the hosts cannot be set up: {' '.join(done.stderr.split())}")
        return done.stdout

    def _from_room(self, *words: str) -> list[str]:
        return self._room.command(*words) if self._room else [*words]

    def end(self) -> None:
        self.process.kill()  # closing its stdin would do, unless a forked process has inherited our end
        self.process.communicate()


class Cluster:
    """`hosts` hosts on this machine, named host0, host1 and so on, each with a link to one switch.

    A link carries `mbit` million bits per second in each direction, and a packet takes `delay_ms` milliseconds from any
    host to any other. `popen` and `run` start programs on a host, and `RankGroup(..., cluster=cluster)` starts ranks.
    Hosts share this machine's cores, memory and files; only network, hostname and process numbers are their own.

        with Cluster(2, mbit=50) as cluster, RankGroup(2, cluster=cluster) as ranks:
            ranks.run(fn)

    Needs Linux, user namespaces (or root), and the commands of util-linux and iproute2. Delay and loss are made by a
    Python program, which keeps up to about 200 Mbit/s.

    Raises:
        ClusterError: if this machine cannot make one, with what it lacks. Nothing is left behind.
    """

    def __init__(self, hosts: int = 2, mbit: float = 100.0, delay_ms: float = 0.0) -> None:
        check_cluster(hosts, mbit, delay_ms, 0.0)
        self.links = [HostLink(mbit, delay_ms, 0.0)] * hosts
        self.hosts: list[_Namespaces | None] = [None] * hosts
        self._hub: subprocess.Popen | None = None
        self._room = _make_room()
        try:
            self._room.sh("ip link add switch type bridge; ip link set switch up")
            for host in range(hosts):
                self.power_on(host)
        except BaseException:
            self.close()
            raise

    def power_on(self, host: int) -> None:
        """Start a host that is off, and plug in its link."""
        if self.hosts[host] is not None:
            raise ValueError(f"host{host} is on")
        inside = self.hosts[host] = _Namespaces(*_KINDS, room=self._room)
        names = "127.0.0.1 localhost\\n" + "".join(rf"10.0.0.{n + 1} host{n}\n" for n in range(len(self.hosts)))
        self._room.sh(f"""ip link add port{host} mtu {MTU} type veth peer name eth0 mtu {MTU} netns {inside.pid}
            ip link set port{host} {"" if self._hub else "master switch"} up""")
        if self._hub:
            self._tell_hub("plug", host)
        # BBR, the default of many machines, spreads times by 10%, and every kernel has Reno
        inside.sh(f"""ip link set lo up; ip address add 10.0.0.{host + 1}/24 dev eth0
            ip link set eth0 address 02:00:00:00:00:{host:02x} up
            hostname host{host}; names=$(mktemp); printf "{names}" > $names; mount --bind $names /etc/hosts; rm $names
            echo 0 > /proc/sys/net/ipv4/tcp_slow_start_after_idle
            echo reno > /proc/sys/net/ipv4/tcp_congestion_control""")
        self.set(host=host)

    def power_off(self, host: int) -> None:
        """Switch a host off. All programs there are gone, and no other host is told, as when the power fails.

        Ranks of a `RankGroup` use only the host's network. They stay, cut off for good: close their group.
        """
        inside = self._inside(host)
        self._room.sh(f"ip link del port{host}")  # first the link, or the kernel would close its connections
        inside.end()
        self.hosts[host] = None

    def unplug(self, host: int) -> None:
        """Take a host's link out of the switch; its programs run on."""
        self._room.sh(f"ip link set port{host} down")

    def plug(self, host: int) -> None:
        """Put it back."""
        self._room.sh(f"ip link set port{host} up")

    def set(self, mbit: float | None = None, delay_ms: float | None = None, loss: float | None = None,
            host: int | None = None) -> None:
        """Change the link of one host, or all links, while programs run; what is not given stays.

        `loss` is the share of the packets that are lost on their way to the host.
        """
        changed = list(self.links)
        for each in range(len(self.hosts)) if host is None else [host]:
            changed[each] = HostLink(*(old if new is None else new
                                       for new, old in zip((mbit, delay_ms, loss), self.links[each])))
            check_cluster(len(self.hosts), *changed[each])
        self.links = changed
        if not self._hub and any(link.delay_ms or link.loss for link in self.links):
            self._start_hub()
        for each, (link, inside) in enumerate(zip(self.links, self.hosts)):
            if inside and host in (None, each):
                at_once = max(10_000, int(125 * link.mbit))  # bytes: 1 ms of the rate, and at least one packet
                limit = f"root tbf rate {link.mbit}mbit burst {at_once} limit 100mb"
                inside.sh(f"tc qdisc replace dev eth0 {limit}")
                self._room.sh(f"tc qdisc replace dev port{each} {limit}")
                if self._hub:
                    self._tell_hub("set", each, link.delay_ms / 1e3, link.loss)

    def popen(self, host: int, *words: str, **options: Any) -> subprocess.Popen:
        """Start a program on a host, as `subprocess.Popen(words, **options)` does here.

        The returned process only waits for the program. If it is terminated or killed, the program gets SIGTERM.
        """
        folder = str(options.pop("cwd", os.getcwd()))  # nsenter would start it in /
        return subprocess.Popen(self._inside(host).command("env", f"--chdir={folder}", *words), **options)

    def run(self, host: int, *words: str) -> str:
        """Run a program on a host to its end; what it printed.

        Raises:
            CalledProcessError: if it failed.
        """
        program = self.popen(host, *words, stdout=subprocess.PIPE, text=True)
        printed = program.communicate()[0]
        if program.returncode:
            raise subprocess.CalledProcessError(program.returncode, words, printed)
        return printed

    def bytes_sent(self, host: int) -> int:
        """Bytes that a host has sent so far, headers included."""
        shown = self._inside(host).sh("ip -json -stats link show eth0")
        return json.loads(shown)[0]["stats64"]["tx"]["bytes"]

    def network(self, rank: int) -> list[str]:
        """The namespaces that a rank's process enters, in this order, to be on its host, number rank % hosts."""
        room, inside = f"/proc/{self._room.pid}", self._inside(rank % len(self.hosts))
        files = f"{room}/root"  # as the room sees them
        return [*[f"{room}/ns/user"] * self._room.has_user, f"{files}/proc/{inside.pid}/ns/net"]

    def close(self) -> None:
        """End all hosts and everything that runs on them."""
        self._room.end()  # and with the first process of its namespace all others in it
        for process in [self._hub, *[inside.process for inside in self.hosts if inside]]:
            if process:
                process.communicate()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _inside(self, host: int) -> _Namespaces:
        if (inside := self.hosts[host]) is None:
            raise ValueError(f"host{host} is off")
        return inside

    def _start_hub(self) -> None:
        """Put a program in the place of the kernel's switch, which neither delays nor loses packets."""
        hub = [sys.executable, "-I", str(Path(__file__).with_name("_hub.py"))]
        self._hub = subprocess.Popen(self._room.command(*hub), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for host in [n for n, inside in enumerate(self.hosts) if inside]:
            self._room.sh(f"ip link set port{host} nomaster")
            self._tell_hub("plug", host)
            self._tell_hub("set", host, self.links[host].delay_ms / 1e3, self.links[host].loss)

    def _tell_hub(self, *words: object) -> None:
        assert self._hub and self._hub.stdin and self._hub.stdout
        print(*words, file=self._hub.stdin, flush=True)
        if self._hub.stdout.readline() != "done\n":
            raise ClusterError("the program that delays packets has ended")


def check_cluster(hosts: int, mbit: float, delay_ms: float, loss: float) -> None:
    """Raise ValueError for a cluster or a link that cannot be."""
    if not 1 <= hosts <= 250:
        raise ValueError(f"a cluster has 1 to 250 hosts, got {hosts}")
    if not 0 < mbit < float("inf") or not 0 <= delay_ms < float("inf") or not 0 <= loss < 1:
        raise ValueError("a link has more than 0 Mbit/s, a delay of 0 ms or more, and loses less than all packets, got "
                         f"mbit={mbit}, delay_ms={delay_ms}, loss={loss}")


def _make_room() -> _Namespaces:
    """The network and the process numbers in which hosts are made, apart from this machine's own."""
    if sys.platform != "linux":
        raise ClusterError("a cluster needs Linux: on macOS and Windows, use a virtual machine or WSL 2")
    packages = {"unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux", "ip": "iproute2",
                "tc": "iproute2", "hostname": "hostname"}
    missing = [f"{name} (package {packages[name]})" for name in packages if not shutil.which(name)]
    if missing:
        raise ClusterError(f"a cluster needs the command {' and '.join(missing)}")
    if not os.geteuid():
        try:
            return _Namespaces(*_KINDS)
        except ClusterError:  # root in a container
            pass
    return _Namespaces("--user", "--map-root-user", *_KINDS)


def _advice(said: str) -> str:
    restricted = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    if restricted.exists() and restricted.read_text().strip() == "1":
        return (f"this machine makes no namespaces ({said}): Ubuntu forbids them to programs without a profile. "
                "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 allows them until the next start")
    return (f"this machine makes no namespaces ({said}): containers usually forbid them "
            "(Docker's option --privileged allows them)")
