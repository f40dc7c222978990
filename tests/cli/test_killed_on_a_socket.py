"""A recorder killed in the middle of messages: what had come of them is there, marked, after the next start."""

import json
import time
from pathlib import Path

from commands import playhead, serving
from faulty.steps import send, until_gone
from faulty.upstream import serving as upstream
from websocket_ends import Client, Packer, answer, create, heard, upgraded

from tracer.recording import FLUSH_INTERVAL_S

PATH = "/v1/responses"


def test_half_a_request_and_half_an_answer_outlive_the_recorder(tmp_path: Path) -> None:
    """One socket was answered in part, to its message's middle; on another a request had come in part."""
    trace, plain = tmp_path / "killed.trace", Packer(masks=False)
    first, second = answer("resp_1", ("word " * 40_000,))[:2]
    frames = plain.frames(first)[0] + plain.frames(second)[0]
    request = create(2, text="long " * 50_000)
    answers = {PATH: [upgraded(), heard, send(frames[:150_000]), until_gone]}
    with upstream(answers) as server:
        with serving("record", "--upstream", server.url, "--trace", trace) as (recorder, url):
            answered, asking = Client(url), Client(url)
            answered.say(create(1))
            answered.wait_for(frames[:150_000])
            asking.socket.sendall(Packer(masks=True).frames(request)[0][:100_000])
            time.sleep(2 * FLUSH_INTERVAL_S + 0.5)
            recorder.kill()
            recorder.wait(20)
            answered.reset()
            asking.reset()
        with serving("record", "--upstream", server.url, "--trace", trace):
            pass
    rows = playhead("exchanges", "--json", "--trace", trace).document
    assert [row["state"] for row in rows] == ["interrupted"] * 4
    one, two = sorted((row for row in rows if row["transport"] == "ws"), key=lambda row: row["request_bytes"])
    kept = playhead("show", one["id"], "--raw", "response", "--trace", trace).out.encode()
    assert kept == first + b"\n" + second[: len(kept) - len(first) - 1]
    assert len(kept) > 140_000
    half = playhead("show", two["id"], "--raw", "request", "--trace", trace).out.encode()
    assert request.startswith(half)
    assert len(half) > 90_000
    assert two["dialect"] == "openai_responses"
    assert json.loads(playhead("verify", "--json", "--trace", trace).out)["problems"] == []
