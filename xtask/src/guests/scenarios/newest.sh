# The newest kernel: what Cotenant needs of it is there, and a run goes from its start to its end.
# Holds see/guests.
. /scenarios/lib.sh
case $(uname -r) in [0-6].*) fail "this is Linux $(uname -r)" ;; esac
tracing
cotenant doctor >/tmp/doctor || { cat /tmp/doctor; fail "doctor failed"; }
for line in '✓ cpu_ns, wait_ns' '✓ freezer: cgroup v2' '✓ background' '✓ progress reports' '✓ DAMON'; do
    grep -q "$line" /tmp/doctor || { cat /tmp/doctor; fail "doctor does not say '$line'"; }
done

if [ -e /proc/pressure ]; then pressure='✓ CPU pressure'; else pressure="helps: psi=1 on the kernel's command line"; fi
grep -q "$pressure" /tmp/doctor || { cat /tmp/doctor; fail "doctor does not say '$pressure'"; }

# Two threads that want a CPU each share one: each waits as long as it runs, and that is said at the end.
export SPIN_BUSY=1
manage run --policy static --map "$(map 1)" --pin cpu --interval 100ms -- spin 0 1
await pidof spin
spin=$(pidof spin)
await has_workers "$spin" 2
await masks_are "$spin" 1
await run_on "$spin" 1
kill "$spin"
await gone "$cotenant"
grep -q 'spin: .* CPUs; .* threads waited for a CPU' /tmp/cotenant || { show; fail "it does not say how long threads waited"; }
