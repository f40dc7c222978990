"""A made-up report: two runs of three sessions with a sub-agent each, a failure, a slow server, reuse that falls short in the second."""

import random
from array import array
from typing import Any

from replay.compare import Arm, compare
from replay.report.facts import Compared, Facts, Subject, facts
from replay.reuse.ideal import Prompt
from replay.reuse.ledger import Names, account
from replay.reuse.prompts import Counted
from replay.reuse.rules import rule
from storage.records import ExchangeId, ExchangeRow, Marks, Run, RunId, Usage

MS = 1_000_000
BEGAN_NS = 1_780_000_000 * 10**9


def exchange(exchange_id: int, **more: Any) -> ExchangeRow:
    """A completed turn, unless told otherwise."""
    known: dict[str, Any] = {
        "id": ExchangeId(exchange_id), "session": 1, "thread": 1, "agent": "main", "parent_thread": None, "number": 1, "kind": "turn",
        "dialect": "anthropic_messages", "transport": "http1", "method": "POST", "url": "http://x/v1/messages", "model": "m-1",
        "status": 200, "state": "complete", "abort_by": None, "retry_of": None, "started_ns": BEGAN_NS, "ended_ns": 900 * MS,
        "headers_ns": MS, "sent_ns": MS, "marks": Marks(), "usage": Usage(), "stop": "end_turn", "streamed": True, "error": None,
        "request_bytes": 1, "request_sha256": "", "response_bytes": 1, "response_sha256": "", "chunks": 1, "run": None,
        "source_exchange": None, "copy": None, "ready_ns": None,
    }  # fmt: skip
    return ExchangeRow(**known | more)


def marks(ttft_ms: float, end_ms: float, reads: int) -> Marks:
    """First content at `ttft_ms`, the last at `end_ms`."""
    first, last = int(ttft_ms * MS), int(end_ms * MS)
    return Marks(
        first_byte_ns=first - 4 * MS, first_content_ns=first, first_output_ns=first, first_text_ns=first, last_content_ns=last,
        content_reads=reads,
    )  # fmt: skip


class Played:
    """One run: three sessions of growing turns; turn 3 waits for a sub-agent. `reuses` is the share of the prefix that is found."""

    def __init__(self, run: int, *, slower: float, reuses: float, fails: bool, sessions: int = 3, turns: int = 9) -> None:
        self.run, self.slower, self.reuses = run, slower, reuses
        self.random = random.Random(7)
        self.rows: list[ExchangeRow] = []
        self.counted: list[Counted] = []
        self.lengths: dict[int, int] = {}
        for session in range(1, sessions + 1):
            at = BEGAN_NS + session * 150 * MS
            for turn in range(1, turns + 1):
                at = self.turn(session, turn, at, fails=fails and (session, turn) == (2, 5))
                if turn == 2:
                    inner = at + 40 * MS
                    for sub in (1, 2):
                        inner = self.turn(session, sub, inner, thread=10 * session + 1, agent="explore")
                    at = inner
                if turn == 6 and session == 1:
                    at += 30_000 * MS
        self.counted.sort(key=lambda one: one.row.started_ns)
        self.rows.sort(key=lambda row: row.started_ns)

    def turn(self, session: int, turn: int, at: int, *, thread: int = 0, agent: str = "main", fails: bool = False) -> int:
        thread = thread or 10 * session
        number = self.run * 1000 + thread * 20 + turn
        path = tuple(thread * 1000 + n for n in range(2 * turn + 2))
        self.lengths.update({name: 900 if name % 1000 == 0 else 130 for name in path})
        prompt = sum(self.lengths[name] for name in path)
        cached = int(self.reuses * (prompt - 260)) // 16 * 16 if turn > 1 else 0
        ttft = self.slower * (30 + (prompt - cached) / 12) * self.random.uniform(0.9, 1.15)
        output = self.random.randint(20, 90)
        end = ttft + output * 5
        start = at + int(self.random.uniform(60, 220) * MS)
        row = exchange(
            number, session=session, thread=thread, agent=agent, number=turn, started_ns=start, ready_ns=start - 400_000,
            ended_ns=int((end + 3) * MS), run=RunId(self.run), source_exchange=ExchangeId(thread * 20 + turn), copy=0,
            marks=marks(ttft, end, output),
            usage=Usage(prompt=prompt, cached=cached, output=output),
            kind="turn",
        )  # fmt: skip
        if fails:
            row = exchange(
                number, session=session, thread=thread, agent=agent, number=turn, started_ns=start, ready_ns=start - 400_000, status=503,
                state="error", ended_ns=55 * MS, run=RunId(self.run), source_exchange=ExchangeId(thread * 20 + turn), copy=0,
                error="the server is <b>overloaded</b>",
            )  # fmt: skip
        else:
            self.counted.append(Counted(row, Prompt(
                exchange=number, space="m-1", start_ns=start, ready_ns=start + int(ttft * MS), end_ns=start + int(end * MS), path=path,
                estimate=prompt, tokens=prompt,
            )))  # fmt: skip
        self.rows.append(row)
        assert row.ended_ns is not None
        return start + row.ended_ns

    def described(self) -> Run:
        settings = {
            "plan": {"sha256": "ab" * 32, "sessions": 3, "turns": len(self.rows), "left_out": {"unread": 2}},
            "policy": {"gaps": "keep", "cache": "as-found"},
            "edits": [{"edit": "url", "to": "http://127.0.0.1:9000"}, {"edit": "report_usage"}],
            "playhead": "0.1.0",
        }
        return Run(id=RunId(self.run), started_ns=BEGAN_NS, ended_ns=None, target="http://127.0.0.1:9000", settings=settings, summary=None)

    def subject(self) -> Subject:
        names = Names(lambda name: array("I", [name]) * self.lengths[name], lambda _: "message")
        ledger = account(self.counted, names, rule("vllm"), generated=True)
        return Subject(id=f"r{self.run}", kind="run", rows=self.rows, ledger=ledger, run=self.described())


def made(*, sessions: int = 3, turns: int = 9, slower: float = 1.6, fails: bool = True) -> Facts:
    """The facts of run 1 and of run 2, which is slower and reuses less."""
    one = Played(1, slower=1.0, reuses=1.0, fails=False, sessions=sessions, turns=turns)
    two = Played(2, slower=slower, reuses=0.55, fails=fails, sessions=sessions, turns=turns)
    found = compare(Arm(run=one.described(), rows=one.rows), Arm(run=two.described(), rows=two.rows))
    return facts([one.subject(), two.subject()], trace="/tmp/some.trace", made_ns=BEGAN_NS, compared=Compared(found=found))
