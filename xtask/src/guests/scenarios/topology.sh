# What `topo` sees; the host compares it with what the emulator was told. `doctor` counts the same.
# Promise see/guests: On emulated machines of many shapes, aarch64 and the newest kernel, the topology is right and
# policies move threads as they should.
. /scenarios/lib.sh
cotenant topo --json | tr -d '\n' | tr -s ' ' >/tmp/topology.json
cotenant topo >/tmp/topo
cotenant doctor >/tmp/doctor
counted=$(head -n 1 /tmp/doctor) seen=$(head -n 1 /tmp/topo)
[ "$(echo "$counted" | sed 's/usable //')" = "$seen" ] || fail "topo says '$seen', doctor '$counted'"
