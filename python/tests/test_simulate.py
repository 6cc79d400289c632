"""Simulations: the figures are those of `cotenant sim`, whose own tests hold them."""

from pathlib import Path

import pandas
import pytest

import cotenant

EXAMPLE = Path(__file__).parents[2] / "crates/cotenant/examples/two-apps.toml"
TEXT = EXAMPLE.read_text()


# Holds record/replay.
def test_a_row_for_each_application_of_each_run():
    runs = cotenant.simulate(EXAMPLE, ["none", "sam"], seeds=2)
    assert len(runs) == 2 * 2 * 2
    assert list(runs["app"].unique()) == ["sgd", "bsgd"]
    assert set(runs["kernel"]) == {"eevdf+numa-balancing"}
    assert (runs["slowdown"] - runs["time_s"] / runs["alone_s"]).abs().max() < 1e-12
    assert (runs["makespan_s"] >= runs["time_s"]).all()
    assert runs["latency_p99_s"].isna().all(), "programs without requests have no latencies"


def test_a_text_is_a_scenario_and_a_seed_is_a_run():
    once, again = (cotenant.simulate(TEXT, "none", seeds=1) for _ in range(2))
    pandas.testing.assert_frame_equal(once, again)
    other = cotenant.simulate(TEXT, "none", seeds=1, kernel="cache-aware")
    assert set(other["kernel"]) == {"cache-aware"}


def test_settings_reach_the_policy():
    together, apart = (
        cotenant.simulate(TEXT, "static", seeds=1, settings={"static": {"map": mapping}})["time_s"].tolist()
        for mapping in [10 * "X" + 10 * "*" + 20 * ".", 10 * "X" + 10 * "." + 10 * "*" + 10 * "."]
    )
    assert together != apart


# Holds record/replay.
def test_requests_have_latencies():
    text = TEXT + "\n[[app]]\nprogram = 'povray06'\nname = 'server'\nwork_s = 1\nload = { requests_per_s = 1000, instructions = 1e5 }\n"
    runs = cotenant.simulate(text, "none", seeds=1)
    served = runs[runs["latency_p99_s"].notna()]
    assert list(served["app"]) == ["server"]
    assert (served["latency_p99_s"] >= served["latency_p50_s"]).all()


def test_names_are_listed():
    assert "sam" in cotenant.policies() and "qos" not in cotenant.policies()
    assert "ivy-bridge-2s" in cotenant.machines()
    assert "mcf06" in cotenant.programs()


def test_what_is_wrong_is_told_with_its_place():
    with pytest.raises(ValueError, match=r"scenario:2:\d+: .*nowhere"):
        cotenant.simulate("# two lines\nmachine = 'nowhere'\n[[app]]\nprogram = 'mcf06'\n")
    with pytest.raises(ValueError, match="there is no policy 'sma'"):
        cotenant.simulate(TEXT, ["sma"])
    with pytest.raises(ValueError, match="policy static needs a map"):
        cotenant.simulate(TEXT, ["static"])
    with pytest.raises(ValueError, match="seeds: 0 is out of range"):
        cotenant.simulate(TEXT, seeds=0)
    with pytest.raises(FileNotFoundError):
        cotenant.simulate("nowhere.toml")
    with pytest.raises(ValueError, match="there is no policy 'sma'"):
        cotenant.simulate(TEXT, "none", settings={"sma": {"a": 1}})
