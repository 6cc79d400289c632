# The kernel moves memory after threads: `auto` takes no thread to the other node, although the program would be faster there, and says so.
. /scenarios/lib.sh
half=$(($(nproc) / 2))
echo 1 >/proc/sys/kernel/numa_balancing
cotenant doctor >/tmp/doctor
grep -q 'auto and shapes try nothing that takes a thread to another memory node' /tmp/doctor || { cat /tmp/doctor; fail "doctor does not say what balancing means for auto"; }

export SPIN_BUSY=1 SPIN_TELL=/tmp/speed
patience=400
start_spin 0 $half
await packages_are 2
manage attach -p "$spin" --policy auto --metric 'log:/tmp/speed:[0-9]+,every=100ms' -v
says() { grep -q "$1" /tmp/cotenant; }
await says 'each thread stays on its memory node'
# In this time the scenario `shapes` finds the faster mapping several times over; there is nothing else to try.
i=0
while [ $i -lt 40 ]; do
    packages_are 2 || { show; fail "a thread went to the other node"; }
    i=$((i + 1))
    sleep 0.5
done
# Balancing is off: what is faster is tried and kept.
echo 0 >/proc/sys/kernel/numa_balancing
await packages_are 1
end_cotenant
masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }
