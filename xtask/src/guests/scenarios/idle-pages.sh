# A large process is looked at by pages drawn at random, where the kernel has idle page tracking: its thread goes to what it accesses.
# Holds see/memory.
. /scenarios/lib.sh
[ -e /sys/kernel/mm/page_idle ] || skip "Linux $(uname -r) has no idle page tracking"
export SPIN_BUSY=1 SPIN_MIB=320 SPIN_NODE=1 SPIN_TOUCH=0
cotenant doctor >/tmp/doctor
grep -q 'accessed bits of single pages: /sys/kernel/mm/page_idle' /tmp/doctor || { cat /tmp/doctor; fail "doctor does not see it in Linux $(uname -r)"; }
patience=300
start_spin 1
await has_pages 1 81920
on_node 1 || { show; fail "the thread does not begin on node 1"; }
manage attach -p "$spin" --policy brute-force --collector accessed -v
await masks_are "$spin" 0
on_node 0 || { show; fail "the thread is not where it may be alone"; }
end_cotenant
grep -q 'collected by accessed' /tmp/cotenant || { show; fail "it does not say what collecting cost"; }
! grep -q 'more rarely than' /tmp/cotenant || { show; fail "all of its pages were looked at"; }
masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }
