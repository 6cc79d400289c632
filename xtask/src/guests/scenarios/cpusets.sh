# A control group's cpuset forbids, shrinks and grows while Cotenant runs: it places inside, and only there.
# Holds undo/allowed-cpus.
. /scenarios/lib.sh
make_box() { echo "$1" >/sys/fs/cgroup/box/cpuset.cpus; }
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/box
make_box 2-5
start_spin 2 3
echo "$spin" >/sys/fs/cgroup/box/cgroup.procs
await masks_are "$spin" 2-5

# The map's CPU 1 is outside: CPU 3 is for all.
manage attach -p "$spin" --policy static --map "$(map 1 3)" --pin cpu --interval 100ms -v
await masks_are "$spin" 3
await run_on "$spin" 3
end_cotenant
masks_are "$spin" 2-5 || { show; fail "masks are not what the cpuset gives: 2-5"; }

# All places are inside, then one, then all again. The process' first thread, which waits, has one, too.
manage attach -p "$spin" --policy static --map "$(map 2 3 4)" --pin cpu --interval 100ms -v
await spread "$spin" 2 3 4
make_box 4-5
await masks_are "$spin" 4
await run_on "$spin" 4
make_box 2-5
await spread "$spin" 2 3 4
! grep -q 'another agent' /tmp/cotenant || { show; fail "a cpuset that changes was taken for another agent"; }
end_cotenant
masks_are "$spin" 2-5 || { show; fail "masks are not what the cpuset gives: 2-5"; }
! grep -q 'another agent' /tmp/cotenant || { show; fail "a cpuset that changes was taken for another agent"; }
