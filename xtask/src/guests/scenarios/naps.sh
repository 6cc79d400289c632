# Naps of an unmodified program by `cgroup.freeze`, in a group of ours and in somebody else's: however Cotenant ends, nothing stays frozen.
# Holds undo/limits.
. /scenarios/lib.sh
# Nobody tells the speed, so the first pause, which measures it alone, goes on and on.
long='cmd:echo 1,every=30s'
is_frozen() {
    read -r frozen </proc/"$spin"/cgroup
    while read -r key frozen; do [ "$key" != frozen ] || break; done <"/sys/fs/cgroup/${frozen#0::/}/cgroup.events"
    [ "$frozen" = 1 ]
}
# Cotenant is held while the program is frozen, so that it dies then and not between two orders.
is_held() { is_frozen && kill -STOP "$cotenant" && { is_frozen || { kill -CONT "$cotenant"; false; }; }; }
end_frozen() {
    if [ "$1" = term ]; then await is_frozen; else await is_held; fi
    end_by "$1" is_frozen
    ! is_frozen || await eval '! is_frozen'
    await runs_freely "$spin"
}

for way in term kill both; do
    start_qos --means outside --metric "$long"
    [ $way != term ] || { await is_frozen; await runs_rarely "$spin" 2; }
    end_frozen $way
    await no_groups /sys/fs/cgroup
    kill -9 "$spin"; await gone "$spin"
    killall sleep || true
done

mkdir /sys/fs/cgroup/theirs
SPIN_BUSY=1 start_spin 1
echo "$spin" >/sys/fs/cgroup/theirs/cgroup.procs
for way in term kill both; do
    manage qos -v --high 'sleep 1000' --low-cgroup /sys/fs/cgroup/theirs --means outside --metric "$long"
    end_frozen $way
    read -r group </proc/"$spin"/cgroup
    [ "$group" = 0::/theirs ] || fail "it was taken out of its group, to $group"
    killall sleep || true
done
