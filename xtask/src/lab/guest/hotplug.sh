# A CPU is switched off while threads are placed on it: Cotenant goes on, and gives back what can be given back.
. /lab/lib.sh
start_spin 2 3
manage attach -p "$spin" --policy static --map "$(map 0 1)" --pin cpu --interval 100ms -v
await run_on "$spin" 0 1
echo 0 >/sys/devices/system/cpu/cpu1/online
sleep 0.5 # a few rounds without the CPU
! gone "$cotenant" || { show; fail "Cotenant ended when a CPU was switched off"; }
! run_on "$spin" 1 || fail "threads run on a CPU that is off"
echo 1 >/sys/devices/system/cpu/cpu1/online
kill -TERM "$cotenant"
await gone "$cotenant"
await masks_are "$spin" "$all"
