# What an earlier daemon has learnt is taken; that of another version is refused by name and not overwritten.
. /scenarios/units.sh
install
state=/var/lib/cotenant/daemon.json
systemctl start cotenant
await says observes
systemctl stop cotenant
grep -q '"version":1' $state || fail "nothing was kept"
systemctl start cotenant
! logged 'daemon.json' || fail "its own state was refused"
systemctl stop cotenant
for version in 0 2; do
    echo "{\"version\":$version,\"new\":[]}" >$state
    systemctl start cotenant
    await logged "daemon.json: its version is $version"
    systemctl stop cotenant
    grep -q '"version":1' $state || fail "nothing was kept after version $version"
    grep -q '"new"' $state.$version || fail "what version $version has learnt is lost"
done
