# `systemctl reload`: a right file is put in force; of a wrong one reload says so, and so does `cotenant status`, while the old one goes on.
. /scenarios/units.sh
install
victim_spin
systemctl start cotenant
before=$(main_of cotenant)
configure "$static"
systemctl reload cotenant || fail "a right file was refused"
await masks_are "$spin" 0
await says 'enforces'
configure "$static
[[rule]]
nam = 'x'"
! systemctl reload cotenant || fail "reload did not say that the file is wrong"
await says 'that of before is in force: .*cotenant.toml:[89]:'
logged 'configuration of before stays in force' MESSAGE_ID=0d5e0d2bd4a54a03a1a4a7c2c3d90a03 || fail "it is not in the log"
is cotenant ActiveState active || fail "a wrong file has ended it"
masks_are "$spin" 0 || fail "a wrong file has changed what is in force"
configure "${static%victim.service*}nobody.service\" }"
systemctl reload cotenant || fail "a right file was refused"
await masks_are "$spin" "$all"
await says '^configuration: /etc/cotenant/cotenant.toml'
[ "$(main_of cotenant)" = "$before" ] || fail "it was restarted"

# With a wrong one it does not start, and is not tried again and again.
configure 'mode = "enforces"'
! systemctl restart cotenant || fail "it starts with a wrong file"
await is cotenant ActiveState failed
is cotenant NRestarts 0 || fail "it was tried again"
configure "$static"
systemctl start cotenant
await masks_are "$spin" 0
systemctl stop cotenant
