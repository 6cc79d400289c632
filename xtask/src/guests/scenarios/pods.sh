# A real kubelet and containerd: the agent's pod, as the chart installs it, learns of two others by NRI and throttles the one for the other. Killed in the middle of a pause, with its guardian, it is started again by the kubelet and first gives back what it left. A pod that stands still can be ended, and so can the agent.
# Holds cluster/kubelet.
. /scenarios/node.sh
start_node
cp /pods/database.yaml /pods/batch.yaml $install/
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
