# The kernel moves memory after threads: `auto` finds out all the same that a program is faster with its threads on one node, once memory has settled, and says what balancing means.
. /scenarios/lib.sh
echo 1 >/proc/sys/kernel/numa_balancing
cotenant doctor >/tmp/doctor
grep -q 'auto and shapes try other memory nodes seldom' /tmp/doctor || { cat /tmp/doctor; fail "doctor does not say what balancing means for auto"; }

export SPIN_BUSY=1 SPIN_TELL=/tmp/speed
patience=1200
start_spin 0 2
# What such a trial may cost is saved up ten times faster.
manage attach -p "$spin" --policy auto --regret 10% --metric 'log:/tmp/speed:[0-9]+,every=100ms' -v
await grep -q 'note: .*kernel.numa_balancing.*is tried seldom' /tmp/cotenant
# Where the kernel takes threads is up to it; by itself it may take both to one node, and then nothing is left to be found.
together() { grep -Eq 'note: kept: spin' /tmp/cotenant || [ "$(tail -n 1 /tmp/speed)" = 2 ]; }
await together
stays() { packages_are 1; }
for i in 1 2 3 4 5 6 7 8 9 10; do await stays; sleep 0.5; done
[ "$(tail -n 1 /tmp/speed)" = 2 ] || { show; fail "the threads are not on one node"; }
end_cotenant
masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }
