# A service that systemd started gives way by its `cpu.idle`, for which Linux forgets its weight: however that ends, and
# whatever systemd does to the unit meanwhile, the service then has the weight that its unit says.
# Holds undo/limits, qos/background.
. /scenarios/units.sh
install
may_throttle
batch
runs_as_its_unit_says 400 || fail "it does not begin as its unit says"

# begin: the daemon takes it to the background.
begin() {
    gives_way 90%
    systemctl start cotenant
    await idle_is 1
}
# end WAY WEIGHT: the daemon ends meanwhile.
end() {
    await idle_is 1
    before=$(main_of cotenant)
    guardian=$(guardian_of "$before")
    [ -n "$guardian" ] || fail "there is no guardian"
    configure "$nobody"
    case $1 in
        stop) systemctl stop cotenant ;;
        alone) kill -9 "$before" ;;
        both) kill -9 "$before" "$guardian" ;;
    esac
    [ "$1" = stop ] || await main_is_new "$before"
    runs_as_its_unit_says "$2" || { cat $group/cpu.idle $group/cpu.weight $group/cgroup.freeze; fail "$1: it does not run as its unit says"; }
    await gone "$guardian"
    [ "$1" != both ] || logged '^[1-9][0-9]* tasks* given back' || fail "somebody else undid it"
    systemctl stop cotenant
}
for way in stop alone both; do
    begin
    end $way 400
done

# systemd writes what the unit says to its group whenever it reloads, and when a property is set. That counts, and the
# service is in the background again after a while.
begin
systemctl daemon-reload
await says 'left alone for a while'
end stop 400
begin
systemctl set-property victim.service CPUWeight=200
await says 'left alone for a while'
end both 200
only_documented || fail "something is left"
no_cotenant || fail "a process is left"
systemctl stop server victim
