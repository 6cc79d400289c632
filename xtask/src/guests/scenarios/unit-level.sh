# The background at the level where it counts: a program that is started from a login gives way to a service, by CPU ticks, in a scope at the top that systemd has made, and nothing of it is left however Cotenant ends. Service beside service; a user's own manager beside a service has no background, and that is said.
# Holds qos/background.
. /scenarios/units.sh
root=/sys/fs/cgroup
systemctl stop cotenant 2>/dev/null || true
# The server computes on both CPUs; its weight lets systemd hand the cpu controller on, as a user's manager does elsewhere. Its speed: alone, while the other one is frozen, 100; beside it 50; in the background it keeps its goal, and more.
victim '/bin/spin 0 1' 'SPIN_BUSY=1
CPUWeight=100'
await has_workers "$spin" 2
server=$spin
systemctl show -P ControlGroup victim | grep -q '^/system.slice/' || fail "it is not in system.slice"
cat >/tmp/speed <<'T'
for group in /sys/fs/cgroup/cotenant-cpu-*.scope /sys/fs/cgroup/system.slice/batch.service; do
    [ ! -e "$group/cgroup.procs" ] || { read -r frozen <"$group/cgroup.freeze"; read -r idle <"$group/cpu.idle"; }
done
case "${frozen:-0} ${idle:-0}" in 1*) echo 100 ;; *1) echo 95 ;; *) echo 50 ;; esac
T
# login ARGS...: `cotenant qos` for the server in a scope of root's slice, as a login is; $cotenant is its pid.
login() {
    systemd-run -q --scope --unit=login --slice=user-0.slice -- cotenant qos -v --all-users --high-pid "$server" \
        --metric 'cmd:sh /tmp/speed,every=300ms,higher' --controller steady --goal 90% "$@" >/tmp/cotenant 2>&1 &
    cotenant=$!
}
# idle_here: a group directly below $around is idle; $group is that.
idle_here() {
    for group in $around; do
        [ -e "$group/cpu.idle" ] && read -r idle <"$group/cpu.idle" && [ "$idle" = 1 ] && return 0
    done
    return 1
}
# ticks: of $server and of $group, which is to be idle all the time: milliseconds of CPU time.
spent() { while read -r key value; do [ "$key" != usage_usec ] || break; done <"$1/cpu.stat"; echo $((value / 1000)); }
# gives_way: in two seconds in which it was idle and not frozen it ran for less than a tenth of what the server did.
gives_way() {
    idle_here && thawed || return 1
    low=$(spent "$group") high=$(spent $root/system.slice/victim.service)
    sleep 2
    idle_here && thawed || return 1
    low=$(($(spent "$group") - low)) high=$(($(spent $root/system.slice/victim.service) - high))
    echo "the server ran for $high ms, the other one for $low ms"
    [ $((low * 10)) -lt $high ]
}

around="$root/cotenant-cpu-*.scope"
for way in term kill both; do
    login --low "$stubborn"
    await idle_here
    no_groups $root/user.slice/user-0.slice || fail "it is beside the login"
    await pidof spin
    if [ $way = term ]; then
        await gives_way
        # systemd writes what it knows of its groups.
        systemctl daemon-reload
        await idle_here
        await gives_way
    fi
    low=
    for pid in $(pidof spin); do [ "$pid" = "$server" ] || low=$pid; done
    end_by $way idle_here
    # Where all of the login was killed it is over: the program stays where it is, beside the others.
    case $way in
        both) ! idle_here || fail "it is idle still"; home=/cotenant-cpu-* ;;
        *) await no_groups $root; home=/user.slice/user-0.slice/login.scope ;;
    esac
    read -r line <"/proc/$low/cgroup"
    case $line in 0::$home) ;; *) fail "$way: it was left in $line" ;; esac
    kill -9 "$low"
    await no_groups $root
    systemctl stop login.scope 2>/dev/null || true
done
systemctl list-units --all --no-legend 'cotenant-cpu-*' | grep -q . && fail "a scope is left" || true

# Service beside service: by its own group.
printf '[Service]\nExecStart=/bin/spin 0 1\nEnvironment=SPIN_BUSY=1\n' >/etc/systemd/system/batch.service
systemctl daemon-reload
systemctl start batch
around=$root/system.slice/batch.service
login --low-cgroup $around
await idle_here
await gives_way
end_cotenant
read -r idle <$around/cpu.idle && [ "$idle" = 0 ] || fail "it is idle still"
systemctl stop batch

# A group of another user's own manager beside a service: all of user.slice would have to give way.
cat >/tmp/manager <<'T'
inside=/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service
mkdir -p $inside/init.scope $inside/app.slice/x.scope
echo $$ >$inside/init.scope/cgroup.procs
echo +cpu >$inside/cgroup.subtree_control
echo +cpu >$inside/app.slice/cgroup.subtree_control
echo $$ >$inside/app.slice/x.scope/cgroup.procs
SPIN_BUSY=1 exec spin 0 1
T
systemd-run -q --unit=user@1000.service --slice=user-1000.slice -p Delegate=yes -p CPUWeight=100 sh /tmp/manager
around=$root/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope
await test -e $around/cpu.idle
await grep -q . $around/cgroup.procs
login --low-cgroup $around --time 10s
await grep -q 'low x.scope: ran' /tmp/cotenant
! idle_here || fail "it is idle in vain"
await gone "$cotenant"
grep -q 'runs in user.slice, .* in system.slice: the background has no effect' /tmp/cotenant || fail "it is not said"
systemctl stop user@1000.service victim
no_cotenant || fail "a process is left"
