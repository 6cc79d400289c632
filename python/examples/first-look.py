# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A first look
#
# What two policies do to programs on a machine that you do not have; then what a recorded run saw, what it decided,
# and what another policy would have decided in its place.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt

import cotenant

# %% [markdown]
# ## A machine on which policies differ
#
# Two sockets with eight caches each. The six threads of `hubench` write to the same data; the forty of `cpu` only
# compute. Linux alone (`none`) leaves the six in several caches, `shapes` tries other places by the programs' speed, and
# `sam` follows the counters of shared data. `slowdown` is the time of a run over that of the same program alone: below 1
# it is faster beside the others than Linux makes it alone.

# %%
scenario = """
machine = "epyc-9454-2s"
[[app]]
program = "hubench"
threads = 6
work_s = 10
[[app]]
program = "cpu"
threads = 40
work_s = 10
"""
runs = cotenant.simulate(scenario, ["none", "shapes", "sam"], seeds=3)
slowdown = runs.pivot_table(index="app", columns="policy", values="slowdown")
slowdown.round(3)

# %%
slowdown.plot.barh(xlabel="slowdown", ylabel="", title="epyc-9454-2s, means of 3 seeds")
plt.axvline(1, color="black", linewidth=1)
plt.show()

# %% [markdown]
# ## A recorded run
#
# `cotenant record -o run.rec -- COMMAND` writes such a file; this one is a run of `sam` whose threads share data across
# two sockets.

# %%
recording = cotenant.Recording("../../fixtures/recordings/two-sockets-sam.rec")
tasks = recording.tasks()
tasks.head()

# %%
cpus = tasks.pivot(index="at_s", columns="task", values="cpu")
cpus.astype(float).plot(drawstyle="steps-post", xlabel="time [s]", ylabel="CPU", title="where each thread ran")
plt.show()

# %% [markdown]
# Rows last as long as `seconds` says, which differs from row to row: weigh by it. The sum over CPUs' worth of time is
# each thread's CPU time.

# %%
(tasks["cpu_share"] * tasks["seconds"]).groupby(tasks["comm"]).sum().plot.barh(xlabel="CPU time [s]", ylabel="")
plt.show()

# %% [markdown]
# Each order has its reason:

# %%
recording.moves()[["at_s", "task", "from_cpu", "to", "outcome", "reason"]].head()

# %% [markdown]
# ## Another policy in its place
#
# Round by round, on the placements that were recorded: what only the recorded policy asked for, what only the replayed
# one, what both.

# %%
recording.replay("shapes")["by"].value_counts()
