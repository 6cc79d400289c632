# A partition takes CPUs away from everybody else, while Cotenant runs: no thread is placed on them, and those inside are placed inside.
# Holds undo/allowed-cpus.
. /scenarios/lib.sh
box=/sys/fs/cgroup/box
partition() {
    echo "$1" >$box/cpuset.cpus.partition
    read -r is <$box/cpuset.cpus.partition
    [ "$is" = "$1" ] || fail "the kernel makes no partition '$1': $is"
}
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
mkdir $box
echo 4-6 >$box/cpuset.cpus
start_spin 2 3
for kind in root isolated; do
    manage attach -p "$spin" --policy static --map "$(map 2 3 4)" --pin cpu --interval 100ms -v
    await spread "$spin" 2 3 4
    partition $kind
    await masks_within "$spin" 2 3
    await run_on "$spin" 2 3
    partition member
    await spread "$spin" 2 3 4
    end_cotenant
    masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }
done

# Inside a partition.
echo "$spin" >$box/cgroup.procs
partition root
await masks_are "$spin" 4-6
manage attach --cgroup $box --policy static --map "$(map 4 5 6)" --pin cpu --interval 100ms -v
await spread "$spin" 4 5 6
await run_on "$spin" 4 5 6
end_cotenant
masks_are "$spin" 4-6 || { show; fail "masks are not what the partition gives: 4-6"; }
