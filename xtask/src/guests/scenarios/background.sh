# The background of an ordinary user, who has no control group: the least weight of the program's session; where Linux
# knows no sessions, SCHED_IDLE, if the limit of nice values lets the program leave it again. However Cotenant ends, both
# are taken back.
. /scenarios/lib.sh
mkdir -p /etc /tmp/home
echo 'user:x:1000:1000::/tmp/home:/bin/sh' >/etc/passwd
chown 1000:1000 /tmp/home

# limited N COMMAND: the user runs it in a session of its own, with that limit: 20 lets a program of nice 0 leave
# SCHED_IDLE.
limited() { ulimit -e "$1"; exec setsid su -s /bin/sh user -c "exec $2"; }
# Of the user, too: what `end_by` and `manage` call.
cotenant() { (limited 0 "/bin/cotenant $*"); }
manage() { limited 0 "/bin/cotenant $*" >/tmp/cotenant 2>&1 & cotenant=$!; }

# stands POLICY NICE: all threads of $spin have this scheduling policy, and its session this nice value.
stands() {
    policies_are "$spin" "$1" || return 1
    read -r line <"/proc/$spin/autogroup"
    [ "${line##* }" = "$2" ]
}
in_background() { stands $there; }

doctor() { (limited "$1" '/bin/cotenant doctor' >/tmp/doctor) || fail "doctor failed"; }
says() { grep -q "$1" /tmp/doctor || { cat /tmp/doctor; fail "doctor does not say '$1'"; }; }
sessions=/proc/sys/kernel/sched_autogroup_enabled
# Debian's kernels give sessions no weight unless asked to.
echo 0 >$sessions
doctor 0
says '✗ background: nothing that can be taken back$'
doctor 20
says '✓ background: SCHED_IDLE$'
echo 1 >$sessions
doctor 0
says '~ background: autogroup nice 19$'
says 'helps: SCHED_IDLE: ulimit -e 20'
doctor 20
says '✓ background: autogroup nice 19 or SCHED_IDLE$'

# begin LIMIT POLICY NICE MEANS
begin() {
    limited "$1" 'env SPIN_BUSY=1 spin 0' & spin=$!
    await has_workers "$spin" 1
    stands 0 0 || fail "it does not begin as programs do"
    manage qos -v --high "'sleep 1000'" --low-pid "$spin" --metric "'cmd:echo 100,every=500ms'"
    there="$2 $3"
    await in_background
    await grep -q "limit in force: $4$" /tmp/cotenant
}
ends_with() {
    end_by "$1" in_background
    await stands 0 0
    await runs_freely "$spin"
    kill -9 "$spin"; await gone "$spin"
    killall sleep || true
}
for way in term kill both; do
    begin 19 0 19 'autogroup nice 19'
    ends_with $way
done
echo 0 >$sessions
for way in term kill both; do
    begin 20 5 0 SCHED_IDLE
    ends_with $way
done

# With a lower limit it could not be left any more, so nobody enters it.
limited 19 'env SPIN_BUSY=1 spin 0' & spin=$!
await has_workers "$spin" 1
manage qos -v --high "'sleep 1000'" --low-pid "$spin" --metric "'cmd:echo 100,every=500ms'"
await grep -q 'at the goal' /tmp/cotenant
stands 0 0 || fail "it entered what it cannot leave"
end_cotenant
