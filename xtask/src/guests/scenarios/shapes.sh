# `auto` finds out by trials that a program is faster with its threads on one node: they go there and stay, and their masks come back at the end.
. /scenarios/lib.sh
half=$(($(nproc) / 2))

# The kernel leaves one busy thread on each of two sockets where they are; what the program says is all that there is to learn from.
export SPIN_BUSY=1 SPIN_TELL=/tmp/speed
patience=400
start_spin 0 $half
await packages_are 2
manage attach -p "$spin" --policy auto --metric 'log:/tmp/speed:[0-9]+,every=100ms' -v
await packages_are 1
# A trial puts them there, too, and takes them away again: what is kept is said, and stands.
kept() { packages_are 1 && masks_differ "$spin" "$all"; }
for i in 1 2 3 4 5 6 7 8 9 10; do await kept; sleep 0.5; done
# Before the masks come back: then the kernel places them as it likes.
[ "$(tail -n 1 /tmp/speed)" = 2 ] || { show; fail "the threads are not on one node"; }
end_cotenant
masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }
grep -q 'kept: spin' /tmp/cotenant || { show; fail "it does not say what it kept"; }
