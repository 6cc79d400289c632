# Another program sets masks again and again: Cotenant stays inside them, does not fight where they leave room, and leaves them at the end.
# Holds undo/others-settings.
. /scenarios/lib.sh
start_spin 2 3
workers "$spin"
set -- $tids
confined=$1 fought=$2
manage attach -p "$spin" --policy static --map "$(map 0 1)" --pin cpu --interval 100ms -v
await masks_differ "$spin" "$all"

# again TID BITS LIST: gives the thread this mask whenever it has another; $overruled says how often in 30 intervals.
again() {
    overruled=0 looks=0
    while [ $looks -lt 30 ]; do
        mask_of "$spin" "$1"
        if [ "$mask" != "$3" ]; then
            taskset -p "$2" "$1" >/dev/null
            overruled=$((overruled + 1))
        fi
        looks=$((looks + 1))
        sleep 0.1
    done
}
# The map has no CPU in this one: the thread is not touched again, but by an order that was under way.
again "$confined" 8 3
[ $overruled -le 2 ] || { show; fail "Cotenant placed a thread $((overruled - 1)) times outside the mask that it was given"; }
# This one leaves room: a pause of 1 s, then of 2 s, so three times in 3 s, and a few looks more or less if the guest is slow.
again "$fought" f 0-3
[ $overruled -ge 2 ] || { show; fail "Cotenant gave up at once"; }
[ $overruled -le 6 ] || { show; fail "Cotenant overruled the other program $overruled times in 30 intervals"; }
sleep 0.2 # two intervals: Cotenant sees that it is overruled
end_cotenant
mask_of "$spin" "$confined"
[ "$mask" = 3 ] || { show; fail "the mask of the confined thread was overwritten at the end: $mask"; }
mask_of "$spin" "$fought"
[ "$mask" = 0-3 ] || { show; fail "the mask of the thread that was fought over was overwritten at the end: $mask"; }
mask_of "$spin" "$spin"
[ "$mask" = "$all" ] || { show; fail "the mask of the thread that nobody fought over did not come back"; }
