# A process with 200,000 mappings, three times as many as are read: Cotenant says that they are too many, keeps to its budget and its memory, and ends.
# Holds see/large-processes.
. /scenarios/lib.sh
echo 250000 >/proc/sys/vm/max_map_count
export SPIN_BUSY=1 SPIN_NODE=1 SPIN_MAPPINGS=200000
patience=2000
# Peak of Cotenant's memory, kB.
peak() { while read -r key peak rest; do [ "$key" != VmHWM: ] || return 0; done <"/proc/$cotenant/status"; }
# judge HOW: it looks once, for as long as that takes; within its budget the next look is long after this.
judge() {
    await runs_rarely "$cotenant" 3
    peak
    [ "$peak" -lt 65536 ] || { show; fail "$1 it took $peak kB"; }
    end_cotenant
    grep -q 'more than 65536 mappings' /tmp/cotenant || { show; fail "$1 it does not say what it does about them"; }
}

start_spin 0
mappings=$(wc -l <"/proc/$spin/maps")
[ "$mappings" -ge 200000 ] || fail "it has $mappings mappings"
for collector in placement accessed; do
    manage attach -p "$spin" --policy weighted --collector $collector -v
    judge "with $collector"
    masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }
done
