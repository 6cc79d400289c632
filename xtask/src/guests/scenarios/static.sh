# `static` moves the threads of a running program, and of one that it starts, to where the map says.
# Holds see/guests.
. /scenarios/lib.sh
last=$(($(nproc) - 1))
start_spin $last $((last - 2))
manage attach -p "$spin" --policy static --map "$(map 0 1)" --pin cpu -v
await run_on "$spin" 0 1
await masks_differ "$spin" "$all"
end_cotenant
masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }
kill -9 "$spin"

manage run --policy static --map "$(map $last)" --pin cpu -- spin 0
await pidof spin
spin=$(pidof spin)
await has_workers "$spin" 1
await run_on "$spin" $last
