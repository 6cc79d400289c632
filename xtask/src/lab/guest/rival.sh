# Another program sets a mask again and again: Cotenant gives way, does not fight, and leaves the other's mask at the end.
. /lab/lib.sh
start_spin 2 3
workers "$spin"
set -- $tids
fought=$1 other=$2
manage attach -p "$spin" --policy static --map "$(map 0 1)" --pin cpu --interval 100ms -v
await masks_differ "$spin" "$all"
overruled=0 looks=0
while [ $looks -lt 30 ]; do # 30 intervals
    mask_of "$spin" "$fought"
    if [ "$mask" != 3 ]; then
        taskset -p 8 "$fought" >/dev/null
        overruled=$((overruled + 1))
    fi
    looks=$((looks + 1))
    sleep 0.1
done
[ $overruled -ge 2 ] || { show; fail "Cotenant never tried again: it overruled the other program $overruled times in 30 intervals"; }
# A pause of 1 s, then of 2 s: three times in 3 s, and a few looks more if the guest is slow.
[ $overruled -le 6 ] || { show; fail "Cotenant overruled the other program $overruled times in 30 intervals"; }
sleep 0.2 # two intervals: Cotenant sees that it is overruled
end_cotenant
mask_of "$spin" "$fought"
[ "$mask" = 3 ] || { show; fail "the other program's mask was overwritten at the end"; }
mask_of "$spin" "$other"
[ "$mask" = "$all" ] || { show; fail "the mask of the thread that nobody fought over did not come back"; }
