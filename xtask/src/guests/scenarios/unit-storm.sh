# 200 programs come and go in a service that is followed: the daemon answers, its watchdog never ends it, what is placed stays, and all is given back.
. /scenarios/units.sh
install
drop_in WatchdogSec=10
victim_spin
configure "$static"'
[[rule]]
name = "storm"
match = { unit = "storm.service" }
policy = "none"'
systemctl start cotenant
await masks_are "$spin" 0
before=$(main_of cotenant)

# Each starts a program five times a second: more than this machine can.
printf '[Service]\nExecStart=/bin/sh -c "for i in $(seq 200); do while :; do sleep 0.2; done & done; wait"\n' >/etc/systemd/system/storm.service
systemctl daemon-reload
systemctl start storm
processes=/sys/fs/cgroup/system.slice/storm.service/cgroup.procs
many() { [ "$(wc -l <$processes)" -ge 200 ]; }
await many
await says 'storm.service *storm'
# Three times what the watchdog waits.
for i in 1 2 3 4 5 6; do
    sleep 5
    await says 'storm.service *storm'
    masks_are "$spin" 0 || fail "what was placed has moved"
done
many || fail "the storm is over"
[ "$(main_of cotenant)" = "$before" ] || fail "the daemon was restarted"
is cotenant NRestarts 0 || fail "the watchdog has ended it"

systemctl stop storm
await says 'victim.service *victims'
systemctl stop cotenant
masks_are "$spin" "$all" || fail "masks are not what they were: $all"
is cotenant Result success || fail "it did not end well"
only_documented || fail "something is left"
no_cotenant || fail "a process is left"
