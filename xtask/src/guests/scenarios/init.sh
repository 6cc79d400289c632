#!/bin/sh
# The first process of a guest, or a service of its systemd: runs the scenarios and tells the host on the console, in lines that begin with '@guest'.
export PATH=/bin:/usr/bin HOME=/root
if [ $$ = 1 ]; then
    [ ! -e /lib/systemd/systemd ] || exec /lib/systemd/systemd
    mount -t proc proc /proc
    mount -t sysfs sysfs /sys
    mount -t devtmpfs dev /dev
    mount -t tmpfs run /run
    mount -t cgroup2 cgroup /sys/fs/cgroup
fi
mount -t tmpfs tmp /tmp
echo 1 >/proc/sys/kernel/printk # the kernel's remarks must not tear the report's lines apart
[ ! -e /proc/sys/kernel/numa_balancing ] || echo 0 >/proc/sys/kernel/numa_balancing
[ -z "$GUEST_SHELL" ] || { echo "Scenarios: sh -eu /scenarios/NAME.sh. 'exit' ends the guest; if it hangs, Ctrl-A and then X."; setsid cttyhack sh; poweroff -f; }

echo "@guest boot"
for name in $(cat /scenarios/list); do
    echo "@guest begin $name"
    status=0
    # Longer than the host waits for a guest unless it is busy itself: that decides.
    timeout "$GUEST_SECONDS" sh -eu $GUEST_TRACE "/scenarios/$name.sh" >/tmp/said 2>&1 </dev/null || status=$?
    [ ! -e /tmp/topology.json ] || { echo "@guest topology $(cat /tmp/topology.json)"; rm /tmp/topology.json; }
    case $status in
        0)
            [ -z "$GUEST_SAID" ] || sed 's/^/@guest said /' /tmp/said
            echo "@guest pass $name" ;;
        77) echo "@guest skip $name $(tail -n 1 /tmp/said)" ;;
        *)
            sed 's/^/@guest said /' /tmp/said
            # Where a scenario ended unawares.
            grep -q '^cotenant said' /tmp/said || [ ! -e /tmp/cotenant ] || sed 's/^/@guest said /' /tmp/cotenant
            echo "@guest fail $name exit status $status" ;;
    esac
    killall -q -9 cotenant spin || true
done
echo "@guest end"
poweroff -f
