# What `topo` sees; the host compares it with what the emulator was told.
. /lab/lib.sh
cotenant topo --json | tr -d '\n' | tr -s ' ' >/tmp/topology.json
cotenant doctor
