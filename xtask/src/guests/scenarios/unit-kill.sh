# The daemon is killed, alone and with its guardian, and hangs: masks come back, and systemd starts another one that goes on.
. /scenarios/units.sh
install
drop_in WatchdogSec=5
victim_spin
configure "$static"
systemctl start cotenant
for way in alone both hangs; do
    await masks_are "$spin" 0
    before=$(main_of cotenant)
    guardian=$(guardian_of "$before")
    [ -n "$guardian" ] || { show; fail "there is no guardian"; }
    # Who comes next does not place anybody, so that what is seen is the undoing.
    configure "${static%victim.service*}nobody.service\" }"
    case $way in
        alone) kill -9 "$before" ;;
        both) kill -9 "$before" "$guardian" ;;
        hangs) kill -STOP "$before" ;;
    esac
    await main_is_new "$before"
    masks_are "$spin" "$all" || { show; fail "$way: masks are not what they were: $all"; }
    await gone "$guardian"
    [ $way != hangs ] || logged 'Watchdog timeout' || journalctl -q -o cat | grep -q 'Watchdog timeout' || { show; fail "it was not the watchdog"; }
    for journal in /run/cotenant/journal-*; do
        case $journal in *-"$before"-*) show; fail "$way: its journal is left" ;; esac
    done
    configure "$static"
    systemctl reload cotenant
done
await masks_are "$spin" 0
systemctl stop cotenant
masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }
only_documented || { show; fail "something is left"; }
no_cotenant || { show; fail "a process is left"; }
