# Where naps are refused, a limit of CPU time comes: no freezer, so pauses by SIGSTOP, and none below 20 ms. The program's user keeps it on one CPU.
# Holds qos/means.
. /scenarios/lib.sh
umount /sys/fs/cgroup
mkdir /tmp/cpu
mount -t cgroup -o cpu cpu /tmp/cpu
# Nothing is disturbed, so that more and more is tried, up to turns with short naps; under the first limit the speed is at the goal.
cat >/tmp/speed <<'T'
set -- /tmp/cpu/cotenant-cpu-*
read -r quota <"$1/cpu.cfs_quota_us"
[ "$quota" -lt 0 ] && echo 100 || echo 92
T
manage qos --json --high 'SPIN_BUSY=1 exec taskset -c 0 spin 0' --low 'SPIN_BUSY=1 exec taskset -c 1 spin 1' --metric 'cmd:sh /tmp/speed,every=500ms'
has_group() { set -- /tmp/cpu/cotenant-cpu-*; group=$1; [ -e "$1/cgroup.procs" ] && read -r spin <"$1/cgroup.procs"; }
await has_group
is_limited() { read -r quota <"$group/cpu.cfs_quota_us"; [ "$quota" -gt 0 ]; }
await is_limited
masks_are "$spin" 1 || { show; fail "it was placed where its user does not want it"; }
end_cotenant
for part in '"climbed":"refused"' '"place":null' '"means":"cpu.cfs_quota_us"' '"limits":[1-9]' 'pauses below 20 ms are not made by SIGSTOP'; do
    grep -q "$part" /tmp/cotenant || { show; fail "the summary does not say $part"; }
done
[ ! -e "$group" ] || { show; fail "the group is left behind"; }
