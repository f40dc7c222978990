"""What a target says of itself, asked of real servers: each engine's pages, wrong ones, silent ones, hosted ones; nothing ever raises."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from golden_server import Visitor, serving

from replay import counters
from replay.counters import Found, Model
from replay.served import Counted


def page(said: Any) -> bytes:
    return json.dumps(said).encode()


def unused(visitor: Visitor) -> None:
    raise AssertionError("nothing is posted here")


VLLM = {
    "/v1/models": page({"object": "list", "data": [{"id": "m", "owned_by": "vllm", "max_model_len": 32768}, {"id": "lora"}]}),
    "/version": page({"version": "0.32.0"}),
    "/metrics": b'vllm:prompt_tokens_total{e="0"} 7\nvllm:prompt_tokens_cached_total{e="0"} 3\n'
    b'vllm:cache_config_info{block_size="16",enable_prefix_caching="True",secret="s"} 1.0\n',
}
SGLANG = {
    "/v1/models": page({"data": [{"id": "m", "owned_by": "sglang", "max_model_len": 8192}]}),
    "/get_server_info": page(
        {
            "version": "0.5.23",
            "page_size": 1,
            "disable_radix_cache": False,
            "api_key": "sk-secret",
            "model_path": "/home/me/m",
            "dtype": None,
        }
    ),
}
LLAMA_CPP = {
    "/v1/models": page({"data": [{"id": "m", "owned_by": "me", "meta": {"n_ctx": 4096}}]}),
    "/props": page({"build_info": "b1", "total_slots": 2, "model_path": "/home/me", "default_generation_settings": {"n_ctx": 2048}}),
    "/metrics": b"llamacpp:prompt_tokens_total 7\nllamacpp:prompt_tokens_cached_total 9\n",
}
TENSORRT_LLM = {
    "/version": page({"version": "1.3"}),
    "/metrics": b"[]",
    "/prometheus/metrics": b"trtllm_prompt_tokens_total 5\ntrtllm_prompt_cached_tokens_total 1\n",
}


def asked(pages: dict[str, bytes], suffix: str = "") -> Found:
    with serving(unused, pages=pages) as server:
        return counters.found(server.url + suffix)


@pytest.mark.parametrize("suffix", ["", "/v1"])
def test_vllm_is_known_by_its_pages(suffix: str) -> None:
    """Whether the target is given with the API's version or without; of the settings only those that bear on reuse."""
    assert asked(VLLM, suffix) == Found(
        server="golden",
        engine="vllm",
        version="0.32.0",
        models=(Model(id="m", longest=32768), Model(id="lora")),
        flags=(("block_size", "16"), ("enable_prefix_caching", "True")),
        counted=Counted(
            engine="vllm",
            prompt=7,
            cached=3,
            prompt_holds_cached=True,
            counters=("vllm:prompt_tokens_total", "vllm:prompt_tokens_cached_total"),
        ),
    )


def test_sglang_tells_much_and_little_is_kept() -> None:
    """Its key and its folders are not."""
    found = asked(SGLANG)
    assert (found.engine, found.version, found.counted) == ("sglang", "0.5.23", None)
    assert found.flags == (("page_size", 1), ("disable_radix_cache", False))
    assert "secret" not in repr(found) + json.dumps(counters.document(found))


def test_llama_cpp_is_known_without_counters_too() -> None:
    """They are there only with --metrics."""
    found = asked(LLAMA_CPP)
    assert (found.engine, found.version, found.models) == ("llama_cpp", "b1", (Model(id="m", longest=4096),))
    assert found.flags == (("total_slots", 2), ("n_ctx", 2048))
    assert found.counted is not None
    silent = asked({path: said for path, said in LLAMA_CPP.items() if path != "/metrics"})
    assert (silent.engine, silent.counted) == ("llama_cpp", None)


def test_tensorrt_llm_has_its_counters_elsewhere() -> None:
    """Its `/metrics` is something else."""
    with serving(unused, pages=TENSORRT_LLM) as server:
        found = counters.found(server.url)
        now = counters.counted(server.url)
    assert (found.engine, found.version, found.models) == ("tensorrt_llm", "1.3", None)
    assert found.counted == now
    assert now is not None
    assert (now.prompt, now.cached) == (5, 1)


def test_what_is_stored_is_json() -> None:
    """Unknown is null."""
    assert counters.document(asked(VLLM)) == {
        "engine": "vllm",
        "version": "0.32.0",
        "server": "golden",
        "models": [{"id": "m", "max_model_len": 32768}, {"id": "lora", "max_model_len": None}],
        "flags": {"block_size": "16", "enable_prefix_caching": "True"},
    }
    nothing = {"engine": None, "version": None, "server": None, "models": None, "flags": {}}
    assert counters.document(Found()) == nothing


@pytest.mark.parametrize(
    "pages",
    [
        {},
        {"/v1/models": b"<html>", "/version": b"[1]", "/props": b"\xff", "/metrics": b"\xff\xfe", "/get_server_info": b""},
        {"/v1/models": page({"data": {"id": 1}}), "/version": page({"version": 3}), "/props": page({"default_generation_settings": 1})},
        {"/v1/models": page({"data": ["m", {"id": 7}, {"owned_by": ["x"], "max_model_len": True}]})},
    ],
    ids=["nothing", "no JSON", "other JSON", "other models"],
)
def test_pages_that_say_something_else_are_nothing(pages: dict[str, bytes]) -> None:
    """But that there is a server."""
    assert asked(pages) in (Found(), Found(server="golden"))


def test_long_answers_are_cut_or_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, lists, bodies."""
    monkeypatch.setattr(counters, "LARGEST_BYTES", 100_000)
    many = page({"data": [{"id": f"{n}" + "x" * 1000} for n in range(50)]})
    found = asked({"/v1/models": many, "/version": page({"version": "v" * 200_000})})
    assert found.models is not None
    assert (len(found.models), len(found.models[0].id), found.version) == (20, 200, None)


def test_the_key_goes_with_every_question_and_nothing_else_does() -> None:
    """As little as a client can say."""
    with serving(unused, pages=VLLM) as server:
        counters.found(server.url, (("Authorization", "Bearer sk-1"),))
    assert sorted(path for path, _ in server.probed) == ["/get_server_info", "/metrics", "/props", "/v1/models", "/version"]
    for _, head in server.probed:
        assert b"authorization: bearer sk-1" in head.lower()
        assert b"accept-encoding: identity" in head.lower()


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with turns."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert asked(VLLM).engine == "vllm"


def silent(visitor: socket.socket) -> None:
    """Says nothing until the client leaves."""
    visitor.recv(65536)
    visitor.recv(65536)


def dripping(visitor: socket.socket) -> None:
    """An answer that never ends."""
    visitor.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")
    for _ in range(2000):
        visitor.sendall(b" ")
        time.sleep(0.01)


def nonsense(visitor: socket.socket) -> None:
    """No HTTP."""
    visitor.sendall(b"SSH-2.0-OpenSSH\r\n\r\n")


def elsewhere(visitor: socket.socket) -> None:
    """Sends the client, and its key, to somebody else."""
    visitor.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize("behaves", [silent, dripping, nonsense, elsewhere])
def test_a_server_that_behaves_badly_costs_a_bounded_time(
    behaves: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is unknown."""
    monkeypatch.setattr(counters, "PATIENCE_S", 0.3)

    def serve(visitor: socket.socket) -> None:
        with visitor:
            try:
                behaves(visitor)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                visitor, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(visitor,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert counters.found(url) == Found()
        assert counters.counted(url) is None
        listening.shutdown(socket.SHUT_RDWR)


def test_nobody_there_is_nobody_there() -> None:
    """A closed port, a name that does not resolve, a key that no header can carry."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert counters.found(f"http://127.0.0.1:{port}") == Found()
    assert counters.found("http://name.invalid") == Found()
    with serving(unused, pages=VLLM) as server:
        assert counters.found(server.url, (("Authorization", "Bearer a\nb"),)) == Found()
        assert counters.found(server.url, (("Authorization", "Bearer €"),)).engine == "vllm"


@pytest.mark.parametrize(
    ("target", "hosted"),
    [
        ("https://api.anthropic.com", True),
        ("https://8.8.8.8/v1", True),
        ("https://gpu.example.org:8443/v1", True),
        ("http://gpu.example.org:8000", False),
        ("https://localhost:8000", False),
        ("https://127.0.0.1", False),
        ("https://[::1]:8000", False),
        ("https://10.0.0.5", False),
        ("https://gpu7", False),
        ("https://gpu7.lan", False),
    ],
)
def test_a_hosted_api_is_known_by_its_name(target: str, hosted: bool) -> None:
    """https to a public host; nothing is looked up."""
    assert counters.is_hosted(target) is hosted


def test_a_hosted_api_is_asked_for_its_models_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for settings nor for counters."""
    monkeypatch.setattr(counters, "is_hosted", lambda target: True)
    with serving(unused, pages=VLLM) as server:
        found = counters.found(server.url)
    assert [path for path, _ in server.probed] == ["/v1/models"]
    assert (found.engine, found.counted, found.version) == ("vllm", None, None)
    assert found.models is not None


def test_tls_is_checked_as_for_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender's context is used."""
    used: list[ssl.SSLContext] = []

    def context() -> ssl.SSLContext:
        used.append(ssl.create_default_context())
        return used[-1]

    monkeypatch.setattr("replay.sender.tls_context", context)
    with serving(unused, pages=VLLM) as server:
        assert counters.found(server.url.replace("http:", "https:")) == Found()
    assert len(used) == 1
