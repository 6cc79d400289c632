# `sam` brings two threads that share data from two sockets together. There is no PMU: the rates come from the application's profile.
. /lab/lib.sh
cat >/tmp/machine.toml <<'T'
clock_hz = 2e9
[thresholds]
coherence_per_cycle = 2.5e-4
socket_bandwidth_per_s = 75e6
task_bandwidth_per_s = 10e6
remote_per_cycle = 3.9e-4
T
profile() { printf '[app.spin.per_cpu_s]\ncycles = 2e9\ninstructions = 1e9\nintra = 0\nremote = 0\ninter = %s\nllc_misses = %s\n' "$1" "$2" >/tmp/apps.toml; }
half=$(($(nproc) / 2))
packages_are() {
    seen=
    workers "$spin"
    for tid in $tids; do
        cpu_of "$spin" "$tid"
        read -r package <"/sys/devices/system/cpu/cpu$cpu/topology/physical_package_id"
        case " $seen " in *" $package "*) ;; *) seen="$seen $package" ;; esac
    done
    set -- "$1" $seen
    [ $# -eq $(($1 + 1)) ]
}

# The kernel leaves one busy thread on each of two sockets where they are: only a policy that knows of sharing joins them.
export SPIN_BUSY=1
start_spin 0 $half
await packages_are 2
profile 4e6 0
manage attach -p "$spin" --policy sam --profile /tmp/machine.toml --profiles /tmp/apps.toml -v
moved() { ! masks_are "$spin" "$all"; }
await moved # one may go to where the other is
await packages_are 1
kill -TERM "$cotenant"
await gone "$cotenant"
masks_are "$spin" "$all" || { show; fail "masks are not what they were: $all"; }
grep -q 'taken from its profile' /tmp/cotenant || { show; fail "it does not say where the rates come from"; }
