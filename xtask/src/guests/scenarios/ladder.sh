# `qos --means auto` climbs from the mildest means on, each where the one before does not do: the background, another place, naps, cpu.max.
# Holds qos/means.
. /scenarios/lib.sh
echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
# What the program of high priority does: 100, but 1 once there is harm and the other one has run since the last look.
cat >/tmp/speed <<'END'
[ -e /tmp/harm ] || { echo 100; exit; }
set -- /sys/fs/cgroup/cotenant-cpu-*
while read -r key value; do [ "$key" = usage_usec ] && used=$value; done <"$1/cpu.stat"
read -r before </tmp/harm || before=0
echo "$used" >/tmp/harm
[ $((used - before)) -gt 1000 ] && echo 1 || echo 100
END
manage qos -v --record /tmp/ladder.rec --high 'SPIN_BUSY=1 exec taskset -c 0 spin 0' --low 'SPIN_BUSY=1 exec spin 1' \
    --metric 'cmd:sh /tmp/speed,every=500ms'
has_group() { set -- /sys/fs/cgroup/cotenant-cpu-*; group=$1; [ -e "$1/cgroup.procs" ] && read -r spin <"$1/cgroup.procs"; }
await has_group
await has_workers "$spin" 1
limit_is() { read -r max <"$group/cpu.max"; [ "$max" = "$1 100000" ]; }
idle_is() { read -r idle <"$group/cpu.idle"; [ "$idle" = "$1" ]; }
await idle_is 1
await grep -q 'limit in force: cpu.idle 1' /tmp/cotenant
await grep -q 'more is tried' /tmp/cotenant
limit_is max || fail "it is limited though nothing is wrong"
masks_are "$spin" 0-3 || { show; fail "it was sent away though nothing is wrong"; }
await grep -q 'at the goal' /tmp/cotenant
idle_is 1 || fail "who gets the CPU that it wants in the background need not leave it"

# From now on the goal is missed wherever and however little it runs. First it is sent where the other program does not run: to the other
# package.
echo 0 >/tmp/harm
await idle_is 1
await masks_are "$spin" 2-3
limit_is max || fail "it is limited before naps were tried"
# At last it is limited to the least duty, a hundredth of four CPUs.
patience=900
await limit_is 4000
await grep -q 'low on CPUs 2-3; limits, since naps did not keep the goal' /tmp/cotenant
await grep -q 'pauses by cpu.max, limit in force: cpu.max 4000 100000' /tmp/cotenant
masks_are "$spin" 2-3 || { show; fail "a limit brought it back to where it was"; }
end_cotenant
grep -q 'means besides naps: low on CPUs 2-3; limits' /tmp/cotenant || { show; fail "the summary does not say which means were in force"; }
cotenant why /tmp/ladder.rec spin >/tmp/why
grep -q '→ 2-3; place: .* of its speed alone < 90.0 %; contention: away from the programs of high priority' /tmp/why || { cat /tmp/why; fail "the recording does not say why it was sent away"; }
grep -q '→ at most .* CPUs; .*limits, since naps did not keep the goal' /tmp/why || { cat /tmp/why; fail "the recording does not say why it was limited"; }
