# Classes: a rule of class low is the consent to freeze that service alone; whoever restarts, kills or stops the daemon in the middle of a pause finds it running. Without the drop-in nobody is frozen.
# Holds undo/limits.
. /scenarios/units.sh
install
classes='mode = "enforce"
[[rule]]
name = "server"
match = { command = "/bin/cotenant", user = "alice" }
class = "high"
goal = "95%"
[[rule]]
name = "batch"
match = { unit = "victim.service" }
class = "low"'
printf '[Service]\nUser=alice\nExecStart=/bin/cotenant kernel chase --size 1M --seconds 3600\n' >/etc/systemd/system/server.service
victim '/bin/spin 0 1' SPIN_BUSY=1
await has_workers "$spin" 2
systemctl start server
group=/sys/fs/cgroup/system.slice/victim.service

configure "$classes"
systemctl start cotenant
await says 'victim.service *batch'
await logged 'Read-only file system'
! frozen_soon 1000 || fail "it was frozen although the unit leaves control groups to systemd"
systemctl stop cotenant

drop_in WatchdogSec=5
may_throttle
systemctl start cotenant
await frozen_soon 300
# The server is left alone, whatever happens to the batch.
read -r value </sys/fs/cgroup/system.slice/server.service/cgroup.freeze
[ "$value" = 0 ] || fail "the server is frozen"

for way in restart alone hangs both; do
    await frozen_soon 300
    before=$(main_of cotenant)
    guardian=$(guardian_of "$before")
    [ -n "$guardian" ] || fail "there is no guardian"
    configure "$nobody"
    [ $way = restart ] || stop_in_a_pause "$before"
    case $way in
        restart) systemctl restart cotenant ;;
        alone) kill -9 "$before" ;;
        both) kill -9 "$before" "$guardian" ;;
        hangs) ;;
    esac
    await main_is_new "$before"
    thawed || fail "$way: it still stands"
    await runs_freely "$spin"
    await gone "$guardian"
    [ $way != both ] || logged ' [1-9][0-9]* resumed' || fail "somebody else undid it"
    configure "$classes"
    systemctl reload cotenant
done

# A service that ends in the middle of a pause does so at once, and its successor is taken on.
await frozen_soon 300
systemctl restart victim
spin=$(main_of victim)
await has_workers "$spin" 2
await frozen_soon 300
systemctl stop cotenant
thawed || fail "stopped: it still stands"
runs_freely "$spin" || fail "stopped: it does not run freely"
only_documented || fail "something is left"
no_cotenant || [ "$(pidof cotenant)" = "$(main_of server)" ] || fail "a process is left"
systemctl stop server victim
