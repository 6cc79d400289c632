# A CPU is switched off and on under threads that are placed on it: Cotenant goes on, blames nobody, and gives back what it took.
# Holds undo/allowed-cpus.
. /scenarios/lib.sh
start_spin 2 3
manage attach -p "$spin" --policy static --map "$(map 0 1)" --pin cpu --interval 100ms -v
await run_on "$spin" 0 1
switches=0
while [ $switches -lt 5 ]; do # a look has to fall into the moments in which the CPU is online and not active
    echo 0 >/sys/devices/system/cpu/cpu1/online
    sleep 0.3 # a few rounds without the CPU
    ! gone "$cotenant" || { show; fail "Cotenant ended when a CPU was switched off"; }
    ! run_on "$spin" 1 || fail "threads run on a CPU that is off"
    echo 1 >/sys/devices/system/cpu/cpu1/online
    sleep 0.2
    switches=$((switches + 1))
done
end_cotenant
await masks_are "$spin" "$all"
! grep -q 'another agent' /tmp/cotenant || { show; fail "a CPU that was switched was taken for another agent"; }
