# Masks come back after SIGTERM, after `kill -9` of Cotenant, of its guardian, and, by `cotenant restore`, of both.
# Holds undo/masks.
. /scenarios/lib.sh
start_spin 2 3
begin() {
    manage attach -p "$spin" --policy static --map "$(map 0 1)" --pin cpu
    await masks_differ "$spin" "$all"
    await run_on "$spin" 0 1
    guardian=$(guardian_of "$cotenant")
    [ -n "$guardian" ] || fail "there is no guardian"
}
begin
ask_to_end
await masks_are "$spin" "$all"
await gone "$guardian"

begin
kill -9 "$cotenant"
await masks_are "$spin" "$all"
await gone "$guardian"

begin
kill -9 "$guardian"
await gone "$guardian"
ask_to_end
await masks_are "$spin" "$all"
await gone "$cotenant"

begin
kill -9 "$cotenant" "$guardian"
await gone "$guardian"
masks_differ "$spin" "$all" || fail "somebody else restored; nothing is left for 'cotenant restore'"
cotenant restore
masks_are "$spin" "$all" || { show; fail "'cotenant restore' did not restore"; }
