# Under the unit's restrictions it sees what it needs of other users' services: events, waits, progress, program, opt-out.
. /scenarios/units.sh
install
configure 'mode = "observe"
[[rule]]
name = "kernels"
match = { command = "/bin/cotenant", user = "alice" }
[[rule]]
name = "victims"
match = { unit = "victim.service" }'
victim '/bin/cotenant kernel inject-memory --rate 1000 --size 1M --seconds 3600'
# Debian's kernels count nothing for CAP_PERFMON at 3, their default, and the daemon goes on without.
paranoid=$(cat /proc/sys/kernel/perf_event_paranoid)
if [ "$paranoid" -gt 2 ]; then
    systemctl start cotenant
    await says 'perf_event_open is refused'
    systemctl stop cotenant
    echo 2 >/proc/sys/kernel/perf_event_paranoid
fi
systemctl start cotenant
daemon=$(main_of cotenant)
counts() { ls -l "/proc/$daemon/fd" 2>/dev/null | grep -q 'perf_event'; }
await counts
await says '^cotenant *kernels .* progress'
sees() { ls -l "/proc/$daemon/fd" 2>/dev/null | grep -q 'bpf-prog'; }
await sees
grep -q 'NoNewPrivs:.*1' "/proc/$daemon/status" && grep -q 'Seccomp:.*2' "/proc/$daemon/status" || fail "it is not restricted"
runs() { cotenant status --json | grep -q '"cpus": *[0-9]'; }
await runs
! logged 'denied\|not permitted' || fail "something was refused"
# Its user asks an ordinary user's own questions.
su alice -c 'cotenant status' | grep -q kernels || fail "its user does not see it"
victim '/bin/cotenant kernel inject-memory --rate 1000 --size 1M --seconds 3600' COTENANT=off
await says 'no service that the rules name'
systemctl stop cotenant victim
