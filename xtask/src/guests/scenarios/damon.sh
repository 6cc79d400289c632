# DAMON tells which memory a program accesses: its thread goes there, though most of its memory is elsewhere; and the monitor is gone at the end.
# Holds see/memory.
. /scenarios/lib.sh
[ -e /sys/kernel/mm/damon ] || skip "Linux $(uname -r) has no DAMON"
export SPIN_BUSY=1 SPIN_NODE=3 SPIN_TOUCH=1
cotenant doctor >/tmp/doctor
grep -q 'DAMON: for address spaces' /tmp/doctor || { cat /tmp/doctor; fail "doctor does not see DAMON in Linux $(uname -r)"; }
start_spin 0
manage attach -p "$spin" --policy brute-force --collector damon -v
await masks_are "$spin" 2-3
await on_node 1
grep -q 1 /sys/kernel/mm/damon/admin/kdamonds/0/contexts/nr_contexts || fail "no monitor was made"
end_cotenant
grep -q 'collected by damon' /tmp/cotenant || { show; fail "it does not say what collecting cost"; }
read -r monitors </sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds
[ "$monitors" = 0 ] || fail "$monitors monitors are left behind"
masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }

# Somebody else's monitors are left alone.
echo 1 >/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds
manage attach -p "$spin" --policy brute-force --collector damon -v
await masks_differ "$spin" "$all"
end_cotenant
grep -q 'another program has made 1 monitor' /tmp/cotenant || { show; fail "it does not say whose monitors are there"; }
read -r monitors </sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds
[ "$monitors" = 1 ] || fail "somebody else's monitors are gone"
