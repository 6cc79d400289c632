# PSI of control groups: a service is short of CPUs while a program beside it computes, and status says so.
# Holds see/waits.
. /scenarios/lib.sh
patience=30 # to ask takes the emulator a second
cotenant doctor >/tmp/doctor
grep -q '✓ CPU pressure: PSI of the machine and of control groups' /tmp/doctor || { cat /tmp/doctor; fail "doctor does not see PSI"; }
# beside GROUP: a program that computes on CPU 0, in a control group of its own; $spin is its pid.
beside() {
    mkdir -p "/sys/fs/cgroup/$1"
    (echo 0 >"/sys/fs/cgroup/$1/cgroup.procs"; SPIN_BUSY=1 exec taskset -c 0 spin 0) & spin=$!
    await has_workers "$spin" 1
}
beside web
printf '[[rule]]\nname = "web"\nmatch = { cgroup = "/web" }\n' >/tmp/cotenant.toml
manage daemon --config /tmp/cotenant.toml
# short_for LEAST MOST: the service is short of CPUs for such a share of the time, in hundredths.
status() { cotenant status --json 2>/dev/null | tr -d ' \n'; }
short_for() {
    short=$(status | sed -n 's/.*"waiting":[^,]*,"pressure":\([0-9][^,]*\).*/\1/p')
    [ -n "$short" ] && echo "$short $1 $2" | awk '{ exit !($1 * 100 >= $2 && $1 * 100 <= $3) }'
}
show() { cat /tmp/cotenant; cotenant status; status; cat /sys/fs/cgroup/*/cpu.pressure /proc/pressure/cpu; }
await short_for 0 25
beside hog
await short_for 30 100
end_cotenant
