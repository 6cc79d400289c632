# The unit, installed as it is packaged: it becomes active when the daemon says so, places threads of another user's service, and its stop gives all back and leaves nothing.
. /scenarios/units.sh
install
systemctl start cotenant
is cotenant ActiveState active || fail "it is not active"
is cotenant Type notify || fail "nobody waited until it was ready"
await says 'observes'
systemctl show -P StatusText cotenant | grep -q '^observe, 1 rule' || fail "its status is not systemd's"
logged 'begins: observe' MESSAGE_ID=0d5e0d2bd4a54a03a1a4a7c2c3d90a05 || fail "it does not log by MESSAGE_ID"
systemctl stop cotenant

victim_spin
configure "$static"
systemctl start cotenant
await masks_are "$spin" 0
await run_on "$spin" 0
logged victim.service MESSAGE_ID=0d5e0d2bd4a54a03a1a4a7c2c3d90a01 COTENANT_RULE=victims || fail "its fields are not in the log"
# What systemd does to itself meanwhile is not undone, and undoes nothing.
systemctl daemon-reload
systemctl set-property --runtime victim.service CPUWeight=50
masks_are "$spin" 0 || fail "daemon-reload has undone it"

# Restarted while masks are changed: given back, and placed again by the next one.
before=$(main_of cotenant)
systemctl restart cotenant
main_is_new "$before" || fail "it was not restarted"
await masks_are "$spin" 0

systemctl stop cotenant
masks_are "$spin" "$all" || fail "masks are not what they were: $all"
is cotenant Result success || fail "it did not end well"
only_documented || fail "something is left"
no_cotenant || fail "a process is left"
