# The kernel moves memory after threads: `auto` finds out all the same that a program is faster with its threads on one node, once memory has settled, and says what balancing means.
# Holds place/shapes.
. /scenarios/lib.sh
echo 1 >/proc/sys/kernel/numa_balancing
cotenant doctor >/tmp/doctor
grep -q 'auto and shapes try other memory nodes seldom' /tmp/doctor || { cat /tmp/doctor; fail "doctor does not say what balancing means for auto"; }

export SPIN_BUSY=1 SPIN_TELL=/tmp/speed
patience=3000
start_spin 0 2
# What such a trial may cost is saved up faster; first the speed must have been steady for two minutes.
manage attach -p "$spin" --policy auto --regret 10% --metric 'log:/tmp/speed:[0-9]+,every=100ms' -v
# By itself the kernel may take both threads to one node, but not for long: it spreads them again.
kept() { packages_are 1 && masks_differ "$spin" "$all"; }
await kept
# A trial takes less than this.
i=0
while [ $i -lt 100 ]; do
    await kept
    i=$((i + 1))
    sleep 0.5
done
[ "$(tail -n 1 /tmp/speed)" = 2 ] || { show; fail "the threads are not on one node"; }
end_cotenant
masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }
grep -q 'note: .*kernel.numa_balancing.*is tried seldom' /tmp/cotenant || { show; fail "it does not say what balancing means"; }
grep -q 'kept: spin' /tmp/cotenant || { show; fail "it does not say what it kept"; }
