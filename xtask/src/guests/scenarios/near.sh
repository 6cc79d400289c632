# Four nodes at asymmetric distances: a thread goes to the memory that it accesses.
. /scenarios/lib.sh
export SPIN_BUSY=1

# Most of its memory is on node 3 and is not touched; what it touches is on node 1. Placement tells of the one, accessed bits of the other.
export SPIN_NODE=3 SPIN_TOUCH=1
start_spin 0
manage attach -p "$spin" --policy brute-force --collector placement -v
await masks_are "$spin" 6-7 # not by the kernel's own chance
await on_node 3
end_cotenant
masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }
manage attach -p "$spin" --policy brute-force --collector accessed -v
await masks_are "$spin" 2-3
await on_node 1
end_cotenant
grep -q 'collected by accessed' /tmp/cotenant || { show; fail "it does not say what collecting cost"; }
