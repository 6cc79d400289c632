# The daemon is killed, alone and with its guardian, and hangs: masks come back, and systemd starts another one that goes on.
. /scenarios/units.sh
install
drop_in WatchdogSec=5
victim_spin
configure "$static"
systemctl start cotenant
for way in alone hangs both; do
    await masks_are "$spin" 0
    before=$(main_of cotenant)
    guardian=$(guardian_of "$before")
    [ -n "$guardian" ] || fail "there is no guardian"
    # Who comes next does not place anybody, so that what is seen is the undoing.
    configure "${static%victim.service*}nobody.service\" }"
    case $way in
        # Its guardian is late, and gets what systemd sends to all, first.
        alone) kill -STOP "$guardian"; kill -9 "$before" ;;
        both) kill -9 "$before" "$guardian" ;;
        hangs) kill -STOP "$before" ;;
    esac
    await main_is_new "$before"
    masks_are "$spin" "$all" || fail "$way: masks are not what they were: $all"
    await gone "$guardian"
    [ $way != hangs ] || logged 'Watchdog timeout' || journalctl -q -o cat | grep -q 'Watchdog timeout' || fail "it was not the watchdog"
    for journal in /run/cotenant/journal-*; do
        case $journal in *-"$before"-*) fail "$way: its journal is left" ;; esac
    done
    # The guardian was let do its work; only without one is there something left for `cotenant restore`.
    case $way in
        alone) ! logged '^[1-9][0-9]* tasks given back' || fail "its guardian was killed, too" ;;
        both) logged '^[1-9][0-9]* tasks given back' || fail "somebody else undid it" ;;
    esac
    configure "$static"
    systemctl reload cotenant
done
await masks_are "$spin" 0
systemctl stop cotenant
masks_are "$spin" "$all" || fail "masks are not what they were: $all"
only_documented || fail "something is left"
no_cotenant || fail "a process is left"
