# Run by scripts/test-package in a clean Debian, as the guests' scenarios are. Our packages, as dpkg installs them: the daemon starts and observes; an upgrade keeps configuration and state, and whom it placed; purge leaves nothing.
. /scenarios/units.sh
patience=600
export DEBIAN_FRONTEND=noninteractive
echo 'alice:x:1000:1000::/:/bin/sh' >>/etc/passwd
echo 'alice:x:1000:' >>/etc/group
# All files but those of dpkg and ldconfig; what is mounted (proc, sys, dev, run, tmp) is no part of it.
everything() { find / -xdev \( -path /var/lib/dpkg -o -path /var/log -o -path /var/cache/ldconfig -o -path /etc/systemd/system/victim.service \) -prune -o -print | sort; }
names=$(for deb in /packages/old/*.deb; do dpkg-deb --field "$deb" Package; done)
dpkg_does() { dpkg --force-confdef --force-confold "$@" >/tmp/dpkg 2>&1 || { cat /tmp/dpkg; fail "dpkg $*"; }; }
everything >/tmp/before
accounts=$(cat /etc/passwd /etc/group)

# A program that is linked with the C library, where its package is among ours.
server_runs() { /packages/server </dev/null >/dev/null 2>&1; }
[ ! -e /packages/server ] || ! server_runs || fail "the C library was there before"

dpkg_does -i /packages/old/*.deb
[ ! -e /packages/server ] || server_runs || fail "the C library is not found"
is cotenant ActiveState active || fail "it was not started"
is cotenant UnitFileState enabled || fail "it will not start with the machine"
await says observes
cotenant daemon --check | grep -q '^ok: observe' || fail "the default configuration is not taken"
[ "$(dpkg --verify $names)" = "" ] || fail "files are not those of the package"
[ "$(stat -c %a /etc/cotenant/cotenant.toml)" = 644 ] || fail "the configuration is not readable"
zcat /usr/share/man/man1/cotenant-daemon.1.gz | grep -q '^\.TH' || fail "there is no man page"
bash -n /usr/share/bash-completion/completions/cotenant || fail "the completions are no bash"

# An upgrade while it places threads, with an edited configuration and what it has learnt.
victim_spin
configure "$static"
systemctl reload cotenant
await masks_are "$spin" 0
before=$(main_of cotenant)
dpkg_does -i /packages/new/*.deb
main_is_new "$before" || fail "it was not restarted"
[ ! -e /packages/server ] || server_runs || fail "the upgraded C library is not found"
await masks_are "$spin" 0
grep -q 'name = "victims"' /etc/cotenant/cotenant.toml || fail "the configuration was replaced"
! logged 'daemon.json' || fail "its own state was refused"

# What an older version has learnt is refused by name, and kept; here the older one comes back over a newer one's.
state=/var/lib/cotenant/daemon.json
systemctl stop cotenant
masks_are "$spin" "$all" || fail "stopped: masks are not what they were: $all"
grep -q '"version":1' $state || fail "nothing was kept"
echo '{"version":0,"new":[]}' >$state
dpkg_does -i /packages/old/*.deb
await logged 'daemon.json: its version is 0'
grep -q '"new"' $state.0 || fail "what another version has learnt is lost"
await masks_are "$spin" 0

# Removed, it gives everything back; configuration and state are there for the next installation.
dpkg_does -r $names
masks_are "$spin" "$all" || fail "removed: masks are not what they were: $all"
no_cotenant || fail "removed: a process is left"
[ ! -e /usr/bin/cotenant ] || fail "removed: the program is left"
grep -q 'name = "victims"' /etc/cotenant/cotenant.toml || fail "removed: the configuration is gone"
[ -e $state ] || fail "removed: the state is gone"
dpkg_does -i /packages/new/*.deb
await masks_are "$spin" 0

# What another cotenant has left to be undone, as one in a container, stays.
dpkg_does -r $names
mkdir -p /run/cotenant
echo theirs >/run/cotenant/journal-theirs
dpkg_does -P $names
[ -e /run/cotenant/journal-theirs ] || fail "purged: another's journal is gone"
masks_are "$spin" "$all" || fail "purged: masks are not what they were: $all"
no_cotenant || fail "purged: a process is left"
systemctl stop victim
everything | diff /tmp/before - || fail "purged: these files came or went"
rm /run/cotenant/journal-theirs
sh /tree/packaging/debian/cotenant.postrm purge
[ ! -e /run/cotenant ] || fail "purged: /run/cotenant is left"
[ -z "$(find /sys/fs/cgroup -name '*cotenant*')" ] || fail "purged: a control group is left"
[ "$accounts" = "$(cat /etc/passwd /etc/group)" ] || fail "purged: a user or a group is left"
is cotenant LoadState not-found || fail "purged: systemd still has the unit"
! dpkg-query -W $names 2>/dev/null | grep -q . || fail "purged: dpkg still has it"
