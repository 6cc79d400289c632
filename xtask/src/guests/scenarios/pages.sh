# `sam` takes a thread to its memory on the other node. There is no PMU: the rate of remote accesses comes from the application's profile.
# Holds see/guests.
. /scenarios/lib.sh
machine
last=$(($(nproc) - 1))

# The kernel leaves a busy thread where it is: only a policy that knows of its memory moves it.
export SPIN_BUSY=1 SPIN_MEMORY=$last
start_spin 0
on_node 0 || { show; fail "the thread does not begin on node 0"; }
profile spin remote 4e6 >/tmp/apps.toml
manage attach -p "$spin" --policy sam --profile /tmp/machine.toml --profiles /tmp/apps.toml -v
await on_node 1
await grep -q 'to its pages' /tmp/cotenant
end_cotenant
masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }
