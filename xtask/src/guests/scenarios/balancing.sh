# The kernel moves memory after threads: `auto` takes no thread to the other node, although the program would be faster there, and says so.
. /scenarios/lib.sh
echo 1 >/proc/sys/kernel/numa_balancing
cotenant doctor >/tmp/doctor
grep -q 'auto and shapes try nothing that takes a thread to another memory node' /tmp/doctor || { cat /tmp/doctor; fail "doctor does not say what balancing means for auto"; }

export SPIN_BUSY=1 SPIN_TELL=/tmp/speed
patience=400
start_spin 0 2
begin() { manage attach -p "$spin" --policy auto --metric 'log:/tmp/speed:[0-9]+,every=100ms' -v; }
begin
# Where the kernel takes threads is up to it. In half of this time the scenario `shapes` finds the faster mapping.
crosses() { grep -Eq 'CPU [01] → [23]|CPU [23] → [01]' /tmp/cotenant; }
i=0
while [ $i -lt 40 ]; do
    ! crosses || { show; fail "a thread was taken to the other node"; }
    i=$((i + 1))
    sleep 0.5
done
end_cotenant
grep -q 'note: .*each thread stays on its memory node' /tmp/cotenant || { show; fail "it does not say why"; }
# Balancing is off: what is faster is tried and kept.
echo 0 >/proc/sys/kernel/numa_balancing
begin
await crosses
end_cotenant
masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }
