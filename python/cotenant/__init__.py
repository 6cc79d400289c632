"""Recordings, replay and simulations of Cotenant as pandas data frames.

    >>> import cotenant
    >>> recording = cotenant.Recording("run.rec")
    >>> recording.tasks()                      # what each thread did, round by round
    >>> recording.replay("sam")                # what another policy would have decided
    >>> cotenant.simulate("two-apps.toml", policies=["none", "sam"])

Times are seconds, rates are per second of wall-clock time. What is not known is missing (NaN, <NA>), never 0.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy
import pandas

from . import _cotenant

__all__ = ["Recording", "machines", "policies", "programs", "simulate"]
__version__: str = _cotenant.VERSION

Settings = Mapping[str, Mapping[str, Any]]

_ABSENT = numpy.iinfo(numpy.int64).min


def _frame(table: Mapping[str, tuple[str, Any]]) -> pandas.DataFrame:
    """A table of the extension as a data frame."""

    def column(kind: str, values: Any) -> Any:
        if kind == "str":
            return values
        numbers = numpy.frombuffer(values, dtype=kind).copy()
        if kind != "<i8":
            return numbers
        absent = numbers == _ABSENT
        return pandas.arrays.IntegerArray(numbers, absent) if absent.any() else numbers

    return pandas.DataFrame({name: column(*values) for name, values in table.items()})


def _json(settings: Settings | None) -> str | None:
    return None if settings is None else json.dumps(settings)


class Recording:
    """A recording: the file that ``cotenant record`` or ``--record`` wrote.

    Only its beginning stays in memory; each table is read from the file when it is asked for.

    Raises ``OSError`` where the file cannot be read, and ``ValueError`` where it is not a recording, or one of a newer
    version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._recording = _cotenant.Recording(Path(path))
        self._header: dict[str, Any] = json.loads(self._recording.header())
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"Recording({str(self.path)!r}, policy={self.policy!r}, mode={self.mode!r})"

    @property
    def header(self) -> dict[str, Any]:
        """All that was known when the recording began, as docs/reference/recording.md describes it."""
        return self._header

    @property
    def policy(self) -> str:
        """The policy that decided; of several rules, the first one's."""
        return self._header["policy"]

    @property
    def mode(self) -> str:
        """``observe``, ``advise`` or ``enforce``: orders were carried out only under ``enforce``."""
        return self._header["mode"]

    @property
    def interval_s(self) -> float:
        """Time between two decisions."""
        interval = self._header["config"]["interval"]
        return interval["secs"] + interval["nanos"] / 1e9

    def tail(self) -> str:
        """How the recording ends: ``complete``, or why it does not come to its end."""
        return self._recording.tail()[0]

    def is_truncated(self) -> bool:
        """Whether the recorder was killed or the file is damaged; the tables hold what comes before."""
        return self._recording.tail()[1]

    def tasks(self) -> pandas.DataFrame:
        """One row for each task (thread) each time that tasks were looked at; in other rounds nothing is new of them.

        Columns: ``round``, ``at_s`` (since the start), ``rule`` (which of several, from 0), ``task``, ``tid``, ``pid``,
        ``app``, ``comm``, ``cpu`` (where it was at the end), ``moved`` (1: it was on other CPUs, too; 0: it was not;
        missing: not counted), ``seconds`` (since the look before: the time that the row is about), ``cpu_share`` (part
        of that time on a CPU, 0 to 1), and ``SIGNAL_per_s`` for each signal that was counted at all, such as
        ``instructions_per_s``.

        Rows are of very unequal length: weigh a mean by ``seconds``. No two rows of a task are about the same time, so
        that ``cpu_share * seconds`` adds up to its CPU time.
        """
        return _frame(self._recording.tasks())

    def apps(self) -> pandas.DataFrame:
        """One row for each application in each round; one for rounds of several rules at the same time.

        Columns: ``round``, ``at_s``, ``rule``, ``app``, ``seconds`` (since the round before, whichever rule that was
        for), ``progress_per_s`` (units of work that it reported), ``latency_p50_s``, ``latency_p99_s``, ``openmp_units_per_s``, ``mpi_calls_per_s``, ``io_bytes_per_s``,
        ``tcp_bytes_per_s``.
        """
        return _frame(self._recording.apps())

    def metrics(self) -> pandas.DataFrame:
        """One row for each metric of an application (``--metric``) each time that it was read anew.

        Columns: ``round``, ``at_s`` (when it was read), ``app``, ``metric``, ``value``, ``window_s`` (the time that it
        is about).
        """
        return _frame(self._recording.metrics())

    def cpus(self) -> pandas.DataFrame:
        """One row for each CPU each time that tasks and CPUs were looked at.

        Columns: ``round``, ``at_s``, ``rule``, ``cpu``, ``seconds`` (since the look before), ``busy`` (part of that
        time, 0 to 1), ``foreign`` (the part of it that the recorded tasks do not explain).
        """
        return _frame(self._recording.cpus())

    def moves(self) -> pandas.DataFrame:
        """One row for each order of the recorded policy.

        Columns: ``round``, ``at_s``, ``effect``, ``task``, ``tid``, ``comm``, ``app``, ``from_cpu``, ``to`` (CPUs as a
        list, or in words), ``reason``, ``outcome`` (``applied``, ``gone``, ``stale``, ``denied``, or
        ``not_this_machine`` where nothing was to be changed).
        """
        return _frame(self._recording.moves())

    def replay(self, policy: str | None = None, settings: Settings | None = None) -> pandas.DataFrame:
        """What a policy would have decided, round by round, on the placements that were recorded.

        ``policy`` is the recorded one by default; ``settings`` are by policy and key, as with ``--set``:
        ``{"sam": {"cooldown": True}}``.

        Columns: those of :meth:`moves` but ``outcome``, and ``by``: ``both``, ``recorded`` or ``replayed``: the side
        that orders it.

        Raises ``ValueError`` where a policy or a setting is unknown, or the recording lacks what the policy needs.
        """
        return _frame(self._recording.replay(policy, _json(settings)))


def simulate(
    scenario: str | os.PathLike[str],
    policies: Iterable[str] = ("none", "sam"),
    *,
    seeds: int = 10,
    kernel: str | None = None,
    settings: Settings | None = None,
) -> pandas.DataFrame:
    """Runs a scenario on a simulated machine under each policy with seeds 1 to ``seeds``.

    ``scenario`` is a path, or the TOML itself where it has more than one line (docs/reference/scenario.md describes
    it). ``policies`` are names of :func:`policies`, or ``optimal``, a search for the best static mapping. ``kernel`` is
    ``eevdf`` or ``cache-aware``, each with or without ``+numa-balancing``; by default the scenario's.

    One row for each application of each run: ``policy``, ``kernel``, ``seed``, ``app``, ``time_s`` of a run,
    ``alone_s`` (the same without the others, the mean over the seeds), ``slowdown`` (``time_s / alone_s``), ``runs``,
    ``latency_p50_s`` and ``latency_p99_s`` of its requests, ``makespan_s``, ``migrations``.

    Raises ``ValueError`` with line and column where the scenario is wrong, ``OSError`` where its file cannot be read.
    """
    if isinstance(policies, str):
        policies = [policies]
    if not 1 <= seeds <= 100_000:
        raise ValueError(f"seeds: {seeds} is out of range: 1 to 100000")
    text = os.fspath(scenario)
    folder = Path()
    if "\n" not in text:
        folder = Path(text).parent
        text = Path(text).read_text(encoding="utf-8")
    return _frame(_cotenant.simulate(text, folder, list(policies), seeds, kernel, _json(settings)))


def policies() -> list[str]:
    """The names of the policies."""
    return _cotenant.policies()


def machines() -> list[str]:
    """The names of the machines that scenarios may name without a file."""
    return _cotenant.machines()


def programs() -> list[str]:
    """The names of the programs that scenarios may name."""
    return _cotenant.programs()
