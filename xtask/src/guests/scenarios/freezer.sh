# A frozen program: Cotenant neither hangs nor forgets it; it ends at once when asked, and the thawed program has its masks again.
# Holds undo/allowed-cpus.
. /scenarios/lib.sh
mkdir -p /sys/fs/cgroup/cold
start_spin 2 3
echo "$spin" >/sys/fs/cgroup/cold/cgroup.procs
manage attach --cgroup /sys/fs/cgroup/cold --policy static --map "$(map 0 1)" --pin cpu
await masks_differ "$spin" "$all"
echo 1 >/sys/fs/cgroup/cold/cgroup.freeze
await grep -q 'frozen 1' /sys/fs/cgroup/cold/cgroup.events
end_cotenant
masks_are "$spin" "$all" || { show; fail "masks of the frozen program are not what they were: $all"; }

manage attach -p "$spin" --policy static --map "$(map 0 1)" --pin cpu
await masks_differ "$spin" "$all"
echo 0 >/sys/fs/cgroup/cold/cgroup.freeze
await run_on "$spin" 0 1
