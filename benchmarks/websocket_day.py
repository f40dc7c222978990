"""A day on one WebSocket, in little: memory and CPU over thousands of responses, large messages, a client that stops reading.

    .venv/bin/python benchmarks/websocket_day.py [--responses 6000]

A response is a 20 kB `response.create` and 203 messages (200 deltas). The plain side is `mitmdump` with its WebSocket layer and an addon
that stamps each message and forgets the one before, in turns with the recorder. Linux only (/proc).
"""

import argparse
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from faulty.steps import Peer, until_gone
from faulty.upstream import serving
from websocket_ends import Client, Packer, answer, create, hear, upgraded

PLAIN = Packer(masks=False)
ANSWER = b"".join(frame for message in answer("resp_1", ("word ",) * 200) for frame in PLAIN.frames(message))
NOTE = PLAIN.frames(b'{"type":"note","x":"' + b"x" * 999_900 + b'"}')[0]
LARGE = PLAIN.frames(answer("resp_1", ("y" * 16_000_000,))[-1])[0]
ASKED = create(1, text="some words to go on from " * 800)
TAP = """
import time

class Tap:
    kept = []
    def websocket_message(self, flow):
        self.kept.append(time.monotonic_ns())
        del flow.websocket.messages[:-1]

addons = [Tap()]
"""
SENT = [0]


async def answering(peer: Peer) -> None:
    while True:
        await hear(peer)
        await peer.send(ANSWER)


async def flooding(peer: Peer) -> None:
    for _ in range(200):
        await peer.send(NOTE)
        SENT[0] += len(NOTE)


async def large(peer: Peer) -> None:
    while True:
        await hear(peer)
        await peer.send(LARGE)


def memory_mb(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) // 1024


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def recorder(upstream: str, folder: Path) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", "cli.main", "record", "--upstream", upstream, "--trace", str(folder / "day.trace"), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout
        yield json.loads(process.stdout.readline())["url"], process.pid
        process.terminate()


@contextmanager
def plain(upstream: str, folder: Path) -> Iterator[tuple[str, int]]:
    (folder / "tap.py").write_text(TAP)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mode = ["--mode", f"reverse:{upstream}@127.0.0.1:{port}", "--set", "connection_strategy=lazy", "--set", f"confdir={folder}"]
    command = [str(Path(sys.executable).with_name("mitmdump")), "-q", *mode, "-s", str(folder / "tap.py")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        for _ in range(200):
            time.sleep(0.05)
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
        yield f"http://127.0.0.1:{port}", process.pid
        process.terminate()


def exchanged(client: Client, count: int) -> None:
    """So many responses, one after the other."""
    for _ in range(count):
        client.say(ASKED)
        left = len(ANSWER)
        while left:
            left -= len(client.socket.recv(min(left, 1 << 20)))


def day(client: Client, pid: int, responses: int) -> None:
    for part in range(6):
        before = cpu_s(pid)
        exchanged(client, responses // 6)
        cpu = (cpu_s(pid) - before) / (responses // 6) * 1e3
        print(f"{(part + 1) * responses // 6} responses: {memory_mb(pid)} MB, {cpu:.2f} ms of CPU each")


def against_plain(url: str, pid: int, other: Client, other_pid: int) -> None:
    """Ratio of the CPU of a response, in neighbouring rounds."""
    ours, ratios = Client(url), []
    for _ in range(8):
        spent = []
        for client, process in ((ours, pid), (other, other_pid)):
            before = cpu_s(process)
            exchanged(client, 150)
            spent.append(cpu_s(process) - before)
        ratios.append(spent[0] / spent[1])
    print(f"CPU of a response over mitmdump's: {statistics.median(ratios):.2f} ({', '.join(f'{ratio:.2f}' for ratio in ratios)})")


def held_up(url: str, pid: int) -> None:
    before, client = memory_mb(pid), Client(url, "/flood")
    time.sleep(3)
    print(f"a client that does not read: the upstream sent {SENT[0] >> 20} of 200 MB, memory grew by {memory_mb(pid) - before} MB")
    client.reset()


def sixteen_megabytes(url: str, pid: int) -> None:
    client, text = Client(url, "/v1/large"), create(1, text="z" * 16_000_000)
    frame = b"\x81\xff" + struct.pack(">Q", len(text)) + bytes(4) + text
    for _ in range(8):
        client.socket.sendall(frame)
        left = len(LARGE)
        while left:
            left -= len(client.socket.recv(min(left, 1 << 20)))
    print(f"eight times 16 MB each way: {memory_mb(pid)} MB")
    client.reset()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--responses", type=int, default=6000)
    responses = parser.parse_args().responses
    answers = {"/v1/responses": [upgraded(), answering], "/flood": [upgraded(), flooding, until_gone], "/v1/large": [upgraded(), large]}
    with tempfile.TemporaryDirectory() as place, serving(answers) as server, recorder(server.url, Path(place)) as (url, pid):
        print(f"at rest: {memory_mb(pid)} MB")
        day(Client(url), pid, responses)
        held_up(url, pid)
        sixteen_megabytes(url, pid)
        with plain(server.url, Path(place)) as (other, other_pid):
            against_plain(url, pid, Client(other), other_pid)


if __name__ == "__main__":
    main()
