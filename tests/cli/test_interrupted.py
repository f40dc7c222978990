"""Ctrl-C in the middle, through the real command: exit 130, what had ended is kept, and nothing is left running."""

import json
import signal
import subprocess
import threading
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import recorded_chats
from commands import PLAYHEAD, environment, playhead, serving

SLOW = ("--decode-tps", "4", "--base-ms", "0")
LIMIT_S = 30


def wait_for_lines(path: Path, count: int) -> None:
    """Until a file has so many lines."""
    deadline = time.monotonic() + LIMIT_S
    while not path.exists() or path.read_text().count("\n") < count:
        assert time.monotonic() < deadline, f"{path.name} never had {count} lines"
        time.sleep(0.02)


def test_a_replay_keeps_its_finished_turns(tmp_path: Path) -> None:
    """The first turns are there with their figures, the streams under way as interrupted, the rest is counted as not sent."""
    trace, truth = tmp_path / "a.trace", tmp_path / "truth.jsonl"
    recorded_chats.write(trace)
    with serving("simulate", *SLOW, "--truth", truth) as (_, url):
        command = [*PLAYHEAD, "replay", "--target", url, "--trace", str(trace), "--json"]
        replay = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        wait_for_lines(truth, 3)  # the server logs an answer before its client has read it: a third one means that two were read
        replay.send_signal(signal.SIGINT)
        out, err = replay.communicate(timeout=LIMIT_S)
    assert replay.returncode == 130
    assert "Traceback" not in err
    figures = json.loads(out)
    rows = playhead("exchanges", figures["run"], "--trace", trace, "--json").document
    states = [row["state"] for row in rows]
    assert states.count("complete") == figures["turns"] - figures["failed"] - figures["interrupted"] >= 2
    assert set(states) <= {"complete", "interrupted"}
    (run,) = playhead("runs", "--trace", trace, "--json").document
    (told,) = playhead("report", figures["run"], "--trace", trace, "--json").document["subjects"]
    assert (run["failed"], run["interrupted"]) == (told["failed"], told["interrupted"]) == (0, states.count("interrupted"))
    assert len(rows) + figures["not_sent"] == 6
    assert playhead("verify", "--trace", trace).code == 0


def test_a_killed_replay_is_told_as_broken_off(tmp_path: Path) -> None:
    """And as running while its process is there."""
    trace, truth = tmp_path / "a.trace", tmp_path / "truth.jsonl"
    recorded_chats.write(trace)
    with serving("simulate", *SLOW, "--truth", truth) as (_, url):
        replay = subprocess.Popen(
            [*PLAYHEAD, "replay", "--target", url, "--trace", str(trace)], stderr=subprocess.DEVNULL, env=environment()
        )
        wait_for_lines(truth, 1)
        assert playhead("runs", "--trace", trace, "--json").document[0]["state"] == "running"
        replay.kill()
        replay.wait(LIMIT_S)
    assert playhead("runs", "--trace", trace, "--json").document[0]["state"] == "broken off"
    assert "broken off" in playhead("runs", "--trace", trace).out


def asked(url: str) -> None:
    """One streamed call, read to its end or until the connection closes."""
    place = urlsplit(url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=LIMIT_S)
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Say something long."}]}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    try:
        connection.getresponse().read()
    except (OSError, HTTPException):
        pass
    finally:
        connection.close()


def test_a_recorder_keeps_a_stream_in_flight(tmp_path: Path) -> None:
    """Stopped while an answer streams, it ends in order and the exchange is there with what had come, marked as cut off."""
    trace = tmp_path / "a.trace"
    with serving("simulate", "--decode-tps", "2", "--base-ms", "0", "--script", "plain") as (_, upstream):
        with serving("record", "--upstream", upstream, "--listen", "127.0.0.1:0", "--trace", trace) as (recorder, url):
            client = threading.Thread(target=asked, args=(url,))
            client.start()
            deadline = time.monotonic() + LIMIT_S
            rows: list[dict[str, object]] = []
            while not (rows and rows[0]["chunks"]):
                assert time.monotonic() < deadline, "the exchange was never listed"
                listed = playhead("exchanges", "--trace", trace, "--json")
                rows = listed.document if listed.code == 0 else []
            assert rows[0]["state"] == "in_flight"
            recorder.send_signal(signal.SIGINT)
            _, err = recorder.communicate(timeout=LIMIT_S)
            client.join(LIMIT_S)
        assert not client.is_alive()
    assert recorder.returncode in (0, 130)
    assert "Traceback" not in err
    (row,) = playhead("exchanges", "--trace", trace, "--json").document
    assert row["state"] == "interrupted"
    assert row["chunks"] > 0
    assert playhead("verify", "--trace", trace).code == 0


def test_a_simulator_ends_quietly() -> None:
    """Ctrl-C is how it is stopped: no traceback, no complaint."""
    with serving("simulate") as (process, _):
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode in (0, 130)
    assert "Traceback" not in err
    assert "error" not in err
