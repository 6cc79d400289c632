# `qos --means quota` with the cpu controller of cgroup v2: cpu.max is written, the program is held to it, and it is lifted however Cotenant ends.
# Holds undo/limits.
. /scenarios/lib.sh
around=/sys/fs/cgroup home=/
echo +cpu >$around/cgroup.subtree_control
# Alone, while the other program is frozen, the speed is 100, else 50: the least duty stands, a hundredth of two CPUs.
cat >/tmp/speed <<'T'
for group in /sys/fs/cgroup/cotenant-cpu-* /sys/fs/cgroup/slice/cotenant-cpu-*; do
    [ ! -e "$group" ] || read -r frozen <"$group/cgroup.freeze"
done
[ "$frozen" = 1 ] && echo 100 || echo 50
T
is_limited() {
    set -- $around/cotenant-cpu-*
    [ -e "$1/cpu.max" ] && read -r max <"$1/cpu.max" && [ "$max" = "2000 100000" ]
}
for way in term kill both; do
    # Where the shell is in a group of its own, that one hands no controllers on: the program's is beside it.
    [ $way != kill ] || {
        around=/sys/fs/cgroup/slice home=/slice/session
        mkdir -p $around/session
        echo +cpu >$around/cgroup.subtree_control
        echo $$ >$around/session/cgroup.procs
    }
    start_qos --means quota --metric 'cmd:sh /tmp/speed,every=300ms'
    await is_limited
    if [ $way = term ]; then
        await grep -q 'limit in force: cpu.max 2000 100000' /tmp/cotenant
        runs_rarely "$spin" 4 || { show; fail "it ran for $ran of $passed ms under a limit of a fiftieth of a CPU"; }
        grep -q '^nr_throttled [1-9]' $around/cotenant-cpu-*/cpu.stat || fail "the kernel never held it back"
        is_limited || fail "the limit was given up meanwhile"
    fi
    end_by $way is_limited
    await no_groups $around
    await runs_freely "$spin"
    read -r group </proc/"$spin"/cgroup
    [ "$group" = 0::$home ] || fail "it was left in $group"
    kill -9 "$spin"; await gone "$spin"
    killall sleep || true
done
