# What the kernel's NUMA balancing has found out tells the threads of a process apart: each goes to the memory that it accesses, the first to node 3 and
# the second to node 1. By any other means here they have the same memory.
# Holds see/memory.
. /scenarios/lib.sh
export SPIN_BUSY=1 SPIN_OWN=31
cotenant doctor >/tmp/doctor
grep -q 'NUMA hinting faults: the kernel scans nothing' /tmp/doctor || { cat /tmp/doctor; fail "doctor does not see that balancing is off"; }
echo 1 >/proc/sys/kernel/numa_balancing
cotenant doctor >/tmp/doctor
grep -q 'NUMA hinting faults: /proc' /tmp/doctor || { cat /tmp/doctor; fail "doctor sees no hinting faults in Linux $(uname -r)"; }
show_faults() { workers "$spin"; for tid in $tids; do tail -n 9 "/proc/$spin/task/$tid/sched"; done; show; }
# The masks of the first and the second worker; not by the kernel's own chance.
apart() {
    workers "$spin"
    set -- $tids
    [ "$1" -lt "$2" ] || set -- "$2" "$1"
    mask_of "$spin" "$1"; first=$mask
    mask_of "$spin" "$2"
    [ "$first $mask" = '6-7 2-3' ]
}

start_spin 0 0
manage attach -p "$spin" --policy brute-force --collector faults -v
await apart
end_cotenant
masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }
grep -q 'collected by faults:' /tmp/cotenant || { show; fail "it does not say what collecting cost"; }

# Where the kernel balances, they are what there is by default for a process with several threads.
manage attach -p "$spin" --policy brute-force -v
await apart
end_cotenant
grep -q 'collected by faults and accessed:' /tmp/cotenant || { show; fail "it does not say what collecting cost"; }
