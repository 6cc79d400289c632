# What the scenarios of the daemon as a service share.
. /scenarios/lib.sh
patience=300

# install: by hand, as docs/how-to/daemon.md says, with a fresh state. configure TEXT: replaces the configuration.
install() {
    systemctl stop cotenant victim 2>/dev/null || true
    rm -rf /etc/cotenant /etc/systemd/system/cotenant.service.d /etc/systemd/system.control /var/lib/cotenant /run/cotenant
    mkdir -p /etc/cotenant/conf.d
    cp /packaging/cotenant.service /etc/systemd/system/
    cp /packaging/cotenant.toml /etc/cotenant/
    systemctl daemon-reload
    systemctl reset-failed cotenant 2>/dev/null || true
}
configure() { echo "$1" >/etc/cotenant/cotenant.toml; }
# drop_in TEXT: the unit with a drop-in.
drop_in() {
    mkdir -p /etc/systemd/system/cotenant.service.d
    printf '[Service]\n%s\n' "$1" >/etc/systemd/system/cotenant.service.d/guest.conf
    systemctl daemon-reload
}
# may_throttle: the unit with the drop-in that opens control groups to it.
may_throttle() {
    mkdir -p /etc/systemd/system/cotenant.service.d
    cp /packaging/throttle.conf /etc/systemd/system/cotenant.service.d/
    systemctl daemon-reload
}
# All of the victim's threads are placed on CPU 0.
static='mode = "enforce"
[set.static]
map = "X."
[[rule]]
name = "victims"
match = { unit = "victim.service" }
policy = "static"'

# Nobody is managed: what the last daemon has changed shows whether it was undone.
nobody='[[rule]]
name = "nobody"
match = { unit = "nobody.service" }'

# victim COMMAND [ENVIRONMENT]: an ordinary user's service; $spin is its first process.
victim() {
    printf '[Service]\nUser=alice\nExecStart=%s\nEnvironment=%s\n' "$1" "${2:-A=b}" >/etc/systemd/system/victim.service
    systemctl daemon-reload
    systemctl restart victim
    spin=$(main_of victim)
}
# victim_spin: two threads of it, one begun on each CPU; $all is their mask.
victim_spin() {
    victim '/bin/spin 0 1'
    await has_workers "$spin" 2
    mask_of "$spin" "$spin"; all=$mask
    await masks_are "$spin" 0-1
}
# batch: the victim with a weight of its own, and a server for which it is to give way; $group is the victim's group.
batch() {
    printf '[Service]\nExecStart=/bin/sleep 1000000\n' >/etc/systemd/system/server.service
    victim '/bin/spin 0 1' 'A=b
CPUWeight=400'
    await has_workers "$spin" 2
    systemctl start server
    group=/sys/fs/cgroup/system.slice/victim.service
}
# gives_way GOAL: rules for both. The server is always as fast as it is alone. For such a metric the victim runs in the
# background, and it naps as well at a goal of 99%, beyond which there is nothing.
gives_way() {
    configure 'mode = "enforce"
[[rule]]
name = "server"
match = { unit = "server.service" }
class = "high"
goal = "'"$1"'"
metric = "cmd:echo 100,every=500ms"
[[rule]]
name = "batch"
match = { unit = "victim.service" }
class = "low"'
}
idle_is() { read -r idle <$group/cpu.idle && [ "$idle" = "$1" ]; }
# runs_as_its_unit_says WEIGHT: the victim.
runs_as_its_unit_says() {
    read -r weight <$group/cpu.weight
    idle_is 0 && [ "$weight" = "$1" ] && is victim CPUWeight "$1" && policies_are "$spin" 0 && thawed
}
main_of() { systemctl show -P MainPID "$1"; }
is() { [ "$(systemctl show -P "$2" "$1")" = "$3" ]; }
main_is_new() { now=$(main_of cotenant); [ "$now" != 0 ] && [ "$now" != "$1" ] && is cotenant ActiveState active; }
# says TEXT: `cotenant status` does.
says() { cotenant status 2>&1 | grep -q -e "$1"; }
# logged TEXT [MATCH...]: the daemon's log has it, with these fields.
logged() { text=$1; shift; journalctl -q -o cat -u cotenant "$@" | grep -q -e "$text"; }
# Nothing is in the folder of the state but what is documented: a lock, and claims of those who live.
only_documented() {
    for path in /run/cotenant/*; do
        case ${path##*/} in control.lock | claims-*) ;; *) echo "left: $path"; return 1 ;; esac
    done
}
no_cotenant() { ! pidof cotenant cotenant-guard; }

# What helps to understand a failure, however it came.
show() {
    shown=yes
    systemctl status --no-pager -l -n 0 cotenant || true
    journalctl -q --no-pager -o short-monotonic -n 30 || true
    cotenant status || true
    ls -la /run/cotenant || true
    workers "${spin:=self}"
    for tid in $tids; do mask_of "$spin" "$tid" && echo "thread $tid: mask $mask"; done || true
}
trap '[ $? = 0 ] || [ "${shown:-}" ] || show' EXIT
