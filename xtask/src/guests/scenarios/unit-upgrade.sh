# An upgrade while a service is throttled, as the package makes it: systemd reloads, and the daemon is restarted. The
# service runs in between, and the next daemon throttles it, whichever version the last one was. What that has learnt
# stays, and so does a journal in its format.
# Holds undo/limits.
. /scenarios/units.sh
install
may_throttle
batch
gives_way 99%
state=/var/lib/cotenant/daemon.json
systemctl start cotenant
for version in 0 2; do
    await idle_is 1
    await frozen_soon 300
    before=$(main_of cotenant)
    # When the last one has ended and the next one has not begun: how the service stands, and a state of that version.
    echo "cat $group/cgroup.freeze $group/cpu.idle $group/cpu.weight >/run/between
sed -i 's/\"version\":1/\"version\":$version/' $state
cp $state /run/learnt" >/run/upgrade
    drop_in 'ExecStartPre=+/bin/sh -eu /run/upgrade'
    old=/run/cotenant/journal-$version
    sed "s/^cotenant-journal-1 /cotenant-journal-$version /" /run/cotenant/journal-*-"$before"-* >$old
    journal=$(cat $old)
    systemctl daemon-reload
    systemctl restart cotenant
    main_is_new "$before" || fail "it was not restarted"
    set -- $(cat /run/between)
    [ "$*" = '0 0 400' ] || fail "between the two it had cgroup.freeze, cpu.idle and cpu.weight: $*"
    await idle_is 1
    await frozen_soon 300
    [ "$(main_of victim)" = "$spin" ] || fail "the service was restarted"
    await logged "daemon.json: its version is $version"
    grep -q "\"version\":$version" /run/learnt && [ "$(cat $state.$version)" = "$(cat /run/learnt)" ] || fail "what version $version has learnt is lost"
    await logged "another version of cotenant wrote it (cotenant-journal-$version)"
    [ "$(cat $old)" = "$journal" ] || fail "a journal of version $version was changed"
    rm $old
done
rm /etc/systemd/system/cotenant.service.d/guest.conf
systemctl daemon-reload
systemctl stop cotenant
runs_as_its_unit_says 400 || fail "stopped: it does not run as its unit says"
is cotenant Result success || fail "it did not end well"
only_documented || fail "something is left"
no_cotenant || fail "a process is left"
systemctl stop server victim
