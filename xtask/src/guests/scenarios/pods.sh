# A real kubelet and containerd: the agent's pod, as the chart installs it, learns of two others by NRI and throttles the one for the other. Killed in the middle of a pause, with its guardian, it is started again by the kubelet and first gives back what it left. A pod that stands still can be ended, and so can the agent.
. /scenarios/lib.sh
patience=600
install=/etc/kubernetes/manifests
show() {
    shown=yes
    for file in /tmp/containerd /tmp/kubelet /var/log/pods/*/*/*.log; do echo "$file:"; grep -v 'I[0-9]* ' "$file" | cut -c 1-400 | tail -n 12; done
    cotenant status || true
}
trap '[ $? = 0 ] || [ "${shown:-}" ] || show' EXIT
says() { cotenant status 2>&1 | grep -q -e "$1"; }
# agent: sets $agent to the daemon's process.
agent() { agent=$(cotenant status 2>/dev/null | sed -n 's/.*(process \([0-9]*\)).*/\1/p'); [ "$agent" ]; }
agent_is_new() { before=$1; agent && [ "$agent" != "$before" ]; }
group_of() { read -r group <"/proc/$1/cgroup" && group=/sys/fs/cgroup${group#*::}; }

# An address that is not the loopback's, for what asks the agent whether it lives.
ip link set lo up
ip address add 10.0.0.1/32 dev lo
# The root of a guest holds half of its memory at most, and the programs fill it.
mkdir -p /var/lib/containerd
mount -t tmpfs -o size=70% images /var/lib/containerd

# image NAME PROGRAM...: makes $NAME.tar with these.
image() {
    name=$1 root=/tmp/$1; shift
    mkdir -p "$root/bin" "$root/usr/bin"
    for program in "$@"; do cp -L "$program" "$root/${program#/}"; done
    for applet in sh sleep; do ln -s busybox "$root/bin/$applet"; done
    tar -C "$root" -cf layer.tar .
    sum=$(sha256sum layer.tar)
    echo '{"architecture":"amd64","os":"linux","config":{"Env":["PATH=/bin:/usr/bin"],"Entrypoint":["/bin/sleep","1000000"]},"rootfs":{"type":"layers","diff_ids":["sha256:'"${sum%% *}"'"]}}' >config.json
    echo '[{"Config":"config.json","RepoTags":["'"$name"':0.1.0"],"Layers":["layer.tar"]}]' >manifest.json
    tar -cf "$name.tar" manifest.json config.json layer.tar
    rm -r "$root" layer.tar
}
cd /tmp
image cotenant /bin/busybox /bin/cotenant /usr/bin/cotenant-node
image small /bin/busybox /bin/spin

containerd --config /etc/containerd.toml >/tmp/containerd 2>&1 &
await ctr version >/dev/null 2>&1
for name in cotenant small; do
    ctr --namespace k8s.io images import --local --snapshotter native $name.tar
    rm $name.tar
done
cp /pods/database.yaml /pods/batch.yaml $install/
kubelet --config /etc/kubernetes/kubelet.yaml --hostname-override guest --node-ip 10.0.0.1 >/tmp/kubelet 2>&1 &
await pidof spin
spin=$(pidof spin)
await has_workers "$spin" 2
await pidof cotenant
group_of "$(pidof cotenant)"
server=$group
group_of "$spin"
# The kubelet's own group, two levels above the container's.
case $group in /sys/fs/cgroup/kubepods/besteffort/pod*/*) ;; *) fail "the container is in $group" ;; esac

cp /pods/agent.yaml $install/
await says 'shop/db-guest/server *databases *high'
await says 'batch/sort-guest/main *batch *low'
for pause in 1 2 3; do
    await frozen_soon 300
    read -r value <"$server/cgroup.freeze"
    [ "$value" = 0 ] || fail "the database is frozen"
    await thawed
done

agent
first=$agent
guardian=$(guardian_of "$first")
[ -n "$guardian" ] || fail "there is no guardian"
stop_in_a_pause "$first"
kill -9 "$guardian" "$first"
await agent_is_new "$first"
# Before it begins.
grep -q ' 1 resumed' /var/log/pods/cotenant-system_*/daemon/1.log || fail "the agent did not give back what it left"
await says 'batch/sort-guest/main *batch *low'

# It ends in the middle of a pause.
await frozen_soon 300
rm $install/agent.yaml
await gone "$agent"
thawed || fail "the agent ended, and the batch stands still"
await runs_freely "$spin"

# The next one hangs in the middle of a pause: a pod that stands still can be ended.
cp /pods/agent.yaml $install/
await agent_is_new "$agent"
await says 'batch/sort-guest/main *batch *low'
stop_in_a_pause "$agent"
rm $install/batch.yaml
await gone "$spin"
kill -CONT "$agent"
rm $install/agent.yaml
await gone "$agent"
for path in /sys/fs/cgroup/kubepods/*/*/*/cgroup.freeze; do
    # The one of the pod that has ended goes meanwhile.
    value=$(cat "$path" 2>/dev/null) || continue
    [ "$value" = 0 ] || fail "$path was left"
done
