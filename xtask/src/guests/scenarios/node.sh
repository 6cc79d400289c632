# What the scenarios of a Kubernetes node share: containerd with our images, and a kubelet without an API server, which
# takes its pods from the folder $install.
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
# group_of PID: sets $group to its control group.
group_of() { read -r group <"/proc/$1/cgroup" && group=/sys/fs/cgroup${group#*::}; }

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
# start_node: unless a scenario before has.
start_node() {
    ! pidof kubelet >/dev/null || return 0
    # An address that is not the loopback's, for what asks the agent whether it lives.
    ip link set lo up
    ip address add 10.0.0.1/32 dev lo
    # The root of a guest holds half of its memory at most, and the programs fill it.
    mkdir -p /var/lib/containerd
    mount -t tmpfs -o size=70% images /var/lib/containerd
    cd /tmp
    image cotenant /bin/busybox /bin/cotenant /usr/bin/cotenant-node
    image small /bin/busybox /bin/spin
    containerd --config /etc/containerd.toml >/tmp/containerd 2>&1 &
    await ctr version >/dev/null 2>&1
    for name in cotenant small; do
        ctr --namespace k8s.io images import --local --snapshotter native $name.tar
        rm $name.tar
    done
    kubelet --config /etc/kubernetes/kubelet.yaml --hostname-override guest --node-ip 10.0.0.1 >/tmp/kubelet 2>&1 &
}
