"""Recordings of the repository, whose figures crates/cotenant-record/tests/all/golden_recordings.rs holds, too."""

from pathlib import Path

import pandas
import pytest

import cotenant

FIXTURES = Path(__file__).parents[2] / "fixtures"
FORMAT_1 = FIXTURES / "recordings/format-1.rec"
SAM = FIXTURES / "recordings/two-sockets-sam.rec"
CORPUS = FIXTURES / "corpus/0.1.0/recordings"


def test_the_beginning_is_read():
    recording = cotenant.Recording(FORMAT_1)
    assert (recording.policy, recording.mode, recording.interval_s) == ("sam", "enforce", 0.1)
    assert recording.header["cotenant"] == "0.1.0"
    assert recording.header["machine"]["thresholds"]["coherence_per_cycle"] == 2.5e-4
    assert recording.tail() == "complete" and not recording.is_truncated()
    assert repr(recording).endswith("policy='sam', mode='enforce')")


# Holds record/replay.
def test_tasks_are_rows():
    tasks = cotenant.Recording(FORMAT_1).tasks()
    assert tasks["round"].nunique() == 6
    assert tasks["at_s"].min() == 0.1
    # Task 4 comes and goes; the others are in every round.
    assert tasks.groupby("task").size().to_dict() == {0: 6, 1: 6, 2: 6, 3: 6, 4: 2}
    # What was never counted has no column; what was not counted in a round is missing there.
    assert "intra_per_s" not in tasks or tasks["intra_per_s"].notna().any()
    assert tasks["inter_per_s"].notna().any()
    first = tasks[(tasks["task"] == 4)].iloc[0]
    assert pandas.isna(first["inter_per_s"]), "a new task has no rates yet"


@pytest.mark.parametrize("name", ["qos-steady-metric", "qos-outside", "run-sam", "sim-qos-targeted"])
def test_rows_weigh_by_their_seconds(name):
    """Most rounds of qos are glances of milliseconds, in which nothing is new of tasks."""
    recording = cotenant.Recording(CORPUS / f"{name}.rec")
    tasks = recording.tasks()
    seconds = tasks["seconds"]
    assert (seconds > 0).all()
    assert (seconds.groupby(tasks["task"]).sum() <= tasks["at_s"].max() + 1e-6).all(), "no time counts twice"
    used = (tasks["cpu_share"] * seconds).groupby(tasks["app"]).sum()
    own = (tasks["cpu_ns_per_s"] * seconds / 1e9).groupby(tasks["app"]).sum()
    assert used.to_dict() == pytest.approx(own.to_dict(), rel=0.01, abs=1e-3)
    assert own.sum() > 0.1
    for table in [recording.apps(), recording.cpus()]:
        assert table.drop_duplicates("round")["seconds"].sum() <= table["at_s"].max() + 1e-6


# Holds record/replay.
def test_moves_carry_outcome_and_reason():
    moves = cotenant.Recording(FORMAT_1).moves()
    first = moves[moves["round"] == 0]
    assert list(zip(first["task"], first["outcome"])) == [(2, "applied"), (3, "denied")]
    assert moves["reason"].str.contains("inter").any()
    assert set(moves["effect"]) == {"placement"}


# Holds record/replay.
def test_cpus_and_apps():
    recording = cotenant.Recording(CORPUS / "run-metrics.rec")
    cpus, apps, metrics = recording.cpus(), recording.apps(), recording.metrics()
    assert cpus["busy"].between(0, 1).all() and (cpus["foreign"] <= cpus["busy"] + 1e-9).all()
    assert apps["round"].nunique() == cpus["round"].nunique()
    assert len(metrics) > 0 and metrics["value"].notna().all()


# Holds record/replay.
def test_the_recorded_policy_decides_the_same_again():
    recording = cotenant.Recording(SAM)
    replayed = recording.replay()
    assert set(replayed["by"]) == {"both"}
    assert len(replayed) == len(recording.moves())


def test_another_policy_decides_otherwise():
    recording = cotenant.Recording(SAM)
    assert set(recording.replay("none")["by"]) == {"recorded"}
    changed = recording.replay(settings={"sam": {"cooldown": True}})
    assert set(changed.columns) == set(recording.moves().columns) - {"outcome"} | {"by"}


def test_what_was_cut_off_is_used_up_to_there(tmp_path):
    whole = FORMAT_1.read_bytes()
    cut = tmp_path / "cut.rec"
    cut.write_bytes(whole[:-20])
    recording = cotenant.Recording(cut)
    assert recording.is_truncated() and "truncated" in recording.tail()
    assert len(recording.tasks()) <= len(cotenant.Recording(FORMAT_1).tasks())


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.rec")), ids=lambda path: path.stem)
def test_every_recording_of_the_last_release_gives_tables(path):
    recording = cotenant.Recording(path)
    for table in [recording.tasks(), recording.apps(), recording.metrics(), recording.cpus(), recording.moves()]:
        assert isinstance(table, pandas.DataFrame)


def test_what_is_wrong_is_told_in_one_line(tmp_path):
    with pytest.raises(FileNotFoundError):
        cotenant.Recording(tmp_path / "none.rec")
    other = tmp_path / "other.rec"
    other.write_text("hello")
    with pytest.raises(ValueError, match="other.rec: this is not a recording"):
        cotenant.Recording(other)
    recording = cotenant.Recording(SAM)
    with pytest.raises(ValueError, match="there is no policy 'sma'"):
        recording.replay("sma")
    with pytest.raises(ValueError, match="settings of sam: unknown field"):
        recording.replay(settings={"sam": {"cool": True}})
