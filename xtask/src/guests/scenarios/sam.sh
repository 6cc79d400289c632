# `sam` brings two threads that share data from two sockets together. There is no PMU: the rates come from the application's profile.
# Holds see/guests.
. /scenarios/lib.sh
machine
half=$(($(nproc) / 2))

# The kernel leaves one busy thread on each of two sockets where they are: only a policy that knows of sharing joins them.
export SPIN_BUSY=1
start_spin 0 $half
await packages_are 2
profile spin inter 4e6 >/tmp/apps.toml
manage attach -p "$spin" --policy sam --profile /tmp/machine.toml --profiles /tmp/apps.toml -v
moved() { ! masks_are "$spin" "$all"; }
await moved # one may go to where the other is
await packages_are 1
end_cotenant
masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }
grep -q 'taken from its profile' /tmp/cotenant || { show; fail "it does not say where the rates come from"; }
