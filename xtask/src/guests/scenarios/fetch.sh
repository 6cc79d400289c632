# A thread that its user keeps far from its memory: the memory comes to it, if that is asked for; not what was bound.
. /scenarios/lib.sh
export SPIN_BUSY=1 SPIN_NODE=3
stop() { end_cotenant; kill "$spin"; await gone "$spin"; }

# Not asked, Cotenant moves nothing; asked, the memory comes to it.
keep() { taskset -c 0-1 spin "$@" & spin=$!; await has_workers "$spin" $#; mask_of "$spin" "$spin"; all=$mask; }
keep 0
await has_pages 3 4096
manage attach -p "$spin" --policy brute-force -v
sleep 2
has_pages 3 4096 || { show; fail "memory moved though nobody asked"; }
end_cotenant
manage attach -p "$spin" --policy brute-force --move-pages -v
await has_pages 0 4096
on_node 0 || { show; fail "the thread left its user's CPUs"; }
stop
grep -q 'pages were moved' /tmp/cotenant || { show; fail "it does not say what was moved"; }

# Bound by its user: never.
export SPIN_BOUND=1
keep 0
await has_pages 3 4096
manage attach -p "$spin" --policy brute-force --move-pages -v
await grep -q 'bring .*\[denied\]' /tmp/cotenant
has_pages 3 4096 || { show; fail "bound memory was moved"; }
stop
