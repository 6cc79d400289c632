# `sam` on four nodes, in an isolated partition, where the kernel balances nothing: whatever moves, Cotenant moved it.
# Holds see/guests.
. /scenarios/lib.sh
box=/sys/fs/cgroup/box
echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
mkdir $box
echo 1-7 >$box/cpuset.cpus
echo isolated >$box/cpuset.cpus.partition
read -r is <$box/cpuset.cpus.partition
[ "$is" = isolated ] || fail "the kernel makes no partition: $is"
echo $$ >$box/cgroup.procs # and with it all that it starts

# Three sharers on three nodes: two come together, which fills their node, and the third finds none with room for all.
machine
start_spin 2 4 6
await packages_are 3
profile spin inter 4e6 >/tmp/apps.toml
manage attach -p "$spin" --policy sam --profile /tmp/machine.toml --profiles /tmp/apps.toml -v
await packages_are 2
end_cotenant
masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }
grep -q 'taken from its profile' /tmp/cotenant || { show; fail "it does not say where the rates come from"; }
