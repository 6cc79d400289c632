#!/bin/sh
# The first process of a guest: runs the scenarios and tells the host on the console, in lines that begin with '@lab'.
export PATH=/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup /sys/fs/cgroup
echo 1 >/proc/sys/kernel/printk # the kernel's remarks must not tear the report's lines apart
[ ! -e /proc/sys/kernel/numa_balancing ] || echo 0 >/proc/sys/kernel/numa_balancing
[ -z "$LAB_SHELL" ] || { echo "Scenarios: sh -eu /lab/NAME.sh. 'exit' ends the guest; if it hangs, Ctrl-A and then X."; setsid cttyhack sh; poweroff -f; }

echo "@lab boot"
for name in $(cat /lab/scenarios); do
    echo "@lab begin $name"
    status=0
    # Longer than the host waits for a guest unless it is busy itself: that decides.
    timeout "$LAB_SECONDS" sh -eu $LAB_TRACE "/lab/$name.sh" >/tmp/said 2>&1 </dev/null || status=$?
    [ ! -e /tmp/topology.json ] || { echo "@lab topology $(cat /tmp/topology.json)"; rm /tmp/topology.json; }
    case $status in
        0) echo "@lab pass $name" ;;
        77) echo "@lab skip $name $(tail -n 1 /tmp/said)" ;;
        *)
            sed 's/^/@lab said /' /tmp/said
            # Where a scenario ended unawares.
            grep -q '^cotenant said' /tmp/said || [ ! -e /tmp/cotenant ] || sed 's/^/@lab said /' /tmp/cotenant
            echo "@lab fail $name exit status $status" ;;
    esac
    killall -q -9 cotenant spin || true
done
echo "@lab end"
poweroff -f
