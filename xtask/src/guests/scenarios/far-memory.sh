# A node of memory alone, nearer to node 0 than to node 1: a thread goes to the CPUs beside it; one that its user keeps gets its memory instead.
. /scenarios/lib.sh
export SPIN_BUSY=1 SPIN_NODE=2

start_spin 2
await has_pages 2 4096
manage attach -p "$spin" --policy brute-force -v
await on_node 0
end_cotenant
masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }
kill "$spin"; await gone "$spin"

taskset -c 2-3 spin 2 & spin=$!
await has_workers "$spin" 1
await has_pages 2 4096
manage attach -p "$spin" --policy brute-force --move-pages -v
await has_pages 1 4096
on_node 1 || { show; fail "the thread left its user's CPUs"; }
end_cotenant
