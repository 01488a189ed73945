"""What a build tells while it runs: on a terminal a live line for each running chapter, and one for each that ends."""

import io
import math
import shutil
import sys
import threading
import time
from types import TracebackType
from typing import TextIO

from reproduced.run.execute import Outcome
from reproduced.run.worker import Started

_REFRESH_SECONDS = 0.5
_BAR = 20


class Progress:
    """Shows the events of an execution on `stream`; safe to call from several threads.

    On a terminal, the lines of the running chapters are drawn over each other; everything else is written once.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._live = self._stream.isatty()
        self._running: dict[str, tuple[Started, float, float]] = {}
        self._drawn = 0
        self._lock = threading.Lock()
        self._expected, self._ended, self._began = 0, 0, time.monotonic()
        self._done = threading.Event()
        self._painter = threading.Thread(target=self._repaint, daemon=True)

    def __enter__(self) -> "Progress":
        if self._live:
            self._painter.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        with self._lock:
            self._running.clear()
            self._draw()

    def expect(self, tasks: int) -> None:
        """From now on, say after each end how many of the tasks have ended and how long the others will take."""
        self._expected = tasks

    def say(self, line: str) -> None:
        """Write a line that stays."""
        with self._lock:
            self._draw(line)

    def tell(self, event: Started | Outcome) -> None:
        """Take note of an event of the execution."""
        now = time.monotonic()
        with self._lock:
            if isinstance(event, Started):
                since = self._running[event.chapter][1] if event.chapter in self._running else now
                self._running[event.chapter] = (event, since, now)
                self._draw()
            else:
                self._running.pop(event.chapter, None)
                self._ended += 1
                self._draw(outcome_line(event) + self._tally(now))

    def _tally(self, now: float) -> str:
        if not self._expected:
            return ""
        minutes = (now - self._began) / self._ended * (self._expected - self._ended) / 60
        left = f", about {math.ceil(minutes)} min left" if self._ended < self._expected else ""
        return f" ({self._ended} of {self._expected} tasks{left})"

    def _repaint(self) -> None:
        while not self._done.wait(_REFRESH_SECONDS):
            with self._lock:
                self._draw()

    def _draw(self, line: str = "") -> None:
        """Write `line` where the live lines begin, and those anew after it; nothing once the reader has gone."""
        try:
            self._write(line)
        except OSError:  # a terminal that was closed, a pipe nobody reads: the work goes on without a witness
            self._stream, self._live = io.StringIO(), False

    def _write(self, line: str) -> None:
        if not self._live:
            if line:
                print(line, file=self._stream, flush=True)
            return
        width, now = shutil.get_terminal_size().columns, time.monotonic()
        live = [
            _running_line(event, now - since, now - cell)[: width - 1] for event, since, cell in self._running.values()
        ]
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        lines = [*([line] if line else []), *live]
        self._stream.write(f"{up}\r\x1b[J" + "".join(f"{text}\n" for text in lines))
        self._stream.flush()
        self._drawn = len(live)


def _running_line(event: Started, seconds: float, cell_seconds: float) -> str:
    full = round(_BAR * (event.cell - 1) / max(event.cells, 1))
    bar = "█" * full + "░" * (_BAR - full)
    return f"  {event.chapter:<20} {bar} cell {event.cell}/{event.cells} {cell_seconds:4.0f} s of {seconds:.0f} s"


def outcome_line(outcome: Outcome) -> str:
    """How a chapter ended, in one line: for a failure the cell and the last line of the error."""
    if outcome.ok:
        return f"✓ {outcome.chapter}: {outcome.cells} cells in {outcome.seconds:.1f} s"
    where = f"failed in cell {outcome.cell} of {outcome.cells}" if outcome.cell else "failed before its first cell"
    return f"✗ {outcome.chapter}: {where} after {outcome.seconds:.1f} s: {outcome.error}"
