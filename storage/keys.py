"""Gives sessions and threads their ids by key, making those that are new, and writes down what a placement says of them."""

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from storage.numbering import Numbering
from storage.packing import pack_ids, pack_tools
from storage.records import Join, Placement
from storage.schema import sessions, threads

type _Told = tuple[str | None, int | None, int | None, str | None]
"""Of a thread: its agent, parent thread, the call that spawned it, the tool call in its answer."""


class Keys:
    """Gives sessions and threads their ids by key, making those that are new. `there`: the exchanges named that exist."""

    def __init__(self, connection: sa.Connection, numbering: Numbering, there: Collection[int]) -> None:
        self._connection = connection
        self._numbering = numbering
        self._there = there
        self._sessions: dict[str, tuple[int, str | None]] = {}
        self._threads: dict[tuple[int, str], tuple[int, _Told]] = {}

    def place(self, placement: Placement) -> dict[str, Any]:
        """The columns of `calls` that say where the call belongs."""
        session = self._session(placement.session_key, placement.client)
        self._forked(session, placement)
        thread = self._thread(session, placement)
        for join in placement.joins:
            self._join(session, join, placement.exchange_id)
        return {
            "session_id": session,
            "thread_id": thread,
            "number": placement.number,
            "kind": placement.kind,
            "after": pack_ids(placement.after),
            "gap_ns": placement.gap_ns,
            "retry_of": self._if_there(placement.retry_of),
            "source": placement.source,
            "confidence": placement.confidence,
            "tool_ns": placement.gap.tool_ns,
            "human_ns": placement.gap.human_ns,
            "harness_ns": placement.gap.harness_ns,
            "tools": pack_tools(placement.gap.tools),
            "compaction_of": self._if_there(placement.compaction_of),
            "compacted_by": self._if_there(placement.compacted_by),
        }

    def _join(self, session: int, join: Join, exchange: int) -> None:
        number = self._bare_thread(session, join.thread_key)
        values = {"mode": join.mode} | ({"joined_exchange_id": exchange} if join.is_joined else {})
        self._connection.execute(sa.update(threads).where(threads.c.id == number).values(values))

    def _forked(self, session: int, placement: Placement) -> None:
        if placement.forked_from is not None:
            origin = self._session(placement.forked_from, None)
            self._connection.execute(sa.update(sessions).where(sessions.c.id == session).values(forked_from_id=origin))

    def _session(self, key: str, client: str | None) -> int:
        known = self._sessions.get(key)
        if known is None:
            row = self._connection.execute(sa.select(sessions.c.id, sessions.c.client).where(sessions.c.key == key)).first()
            known = (row[0], row[1]) if row else (self._add(sessions, key=key, client=client), client)
        if client is not None and known[1] != client:
            self._connection.execute(sa.update(sessions).where(sessions.c.id == known[0]).values(client=client))
            known = known[0], client
        self._sessions[key] = known
        return known[0]

    def _thread(self, session: int, placement: Placement) -> int:
        parent = None
        if placement.parent_thread_key is not None and placement.parent_thread_key != placement.thread_key:
            parent = self._bare_thread(session, placement.parent_thread_key)
        number = self._bare_thread(session, placement.thread_key)
        told = (placement.agent, parent, self._if_there(placement.parent_exchange_id), placement.parent_call)
        known = self._threads[session, placement.thread_key][1]
        if told != known:
            values = dict(zip(("agent", "parent_thread_id", "parent_exchange_id", "parent_call"), told, strict=True))
            self._connection.execute(sa.update(threads).where(threads.c.id == number).values(values))
            self._threads[session, placement.thread_key] = (number, told)
        return number

    def _bare_thread(self, session: int, key: str) -> int:
        """A thread's id by its key; what else is known of it may come later."""
        if (session, key) not in self._threads:
            query = sa.select(threads).where(threads.c.session_id == session, threads.c.key == key)
            row = self._connection.execute(query).first()
            if row is None:
                self._threads[session, key] = self._add(threads, session_id=session, key=key), (None, None, None, None)
            else:
                self._threads[session, key] = row.id, (row.agent, row.parent_thread_id, row.parent_exchange_id, row.parent_call)
        return self._threads[session, key][0]

    def _if_there(self, exchange: int | None) -> int | None:
        return exchange if exchange in self._there else None

    def _add(self, table: sa.Table, **values: object) -> int:
        number = self._numbering.take(self._connection, table)
        self._connection.execute(sa.insert(table), values | {"id": number})
        return number
