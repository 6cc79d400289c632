# The kubelet gives a pod two CPUs of its own (static CPU manager): it is left alone there, and the threads of another
# pod are placed inside what this leaves to the others, as that shrinks and grows.
# Holds cluster/kubelet.
. /scenarios/node.sh
start_node
rm -f $install/*
echo 'mode = "enforce"
listen = "127.0.0.1:9844"
[set.static]
map = "X*X*"
[[rule]]
name = "pods"
match = { namespace = "web" }
policy = "static"' >/etc/cotenant/cotenant.toml
cp /pods/web.yaml /pods/agent.yaml $install/
await pidof spin
spin=$(pidof spin)
await has_workers "$spin" 2
await masks_are "$spin" 0,2

cp /pods/own.yaml $install/
# The map would have it on CPUs 1 and 3.
own() { for own in $(pidof spin); do [ "$own" = "$spin" ] || return 0; done; return 1; }
await own
await has_workers "$own" 2
await says 'web/own-guest/main *pods *normal *none'
await masks_are "$own" 2-3
await masks_are "$spin" 0
await run_on "$spin" 0

rm $install/own.yaml
await gone "$own"
await masks_are "$spin" 0,2
! says 'another agent' || fail "a cpuset that changes was taken for another agent"
agent
rm $install/agent.yaml
await gone "$agent"
masks_are "$spin" 0-3 || fail "the agent ended, and its masks are left"
rm $install/web.yaml
await gone "$spin"
