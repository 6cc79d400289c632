package cluster

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// What is bound before, between and after is where the goal is kept, and nothing is left over.
// Holds cluster/restarts.
func TestSchedulerAndAPIServerMayEndInMidWork(t *testing.T) {
	c, scheduler := start(t)
	// What is a minute old counts no more, and this may take longer.
	measure := func() {
		for i := range 4 {
			c.measure(fmt.Sprintf("busy-%d", i), 9)
			c.measure(fmt.Sprintf("free-%d", i), 0)
		}
	}
	for i := range 4 {
		c.node(fmt.Sprintf("busy-%d", i))
		c.node(fmt.Sprintf("free-%d", i))
	}
	measure()
	c.profile("web", 0.01, 0.8)
	c.settle("free-", choosy)
	web := &replicas{c: c}
	web.add(50)
	c.bound("web-0")
	scheduler.crash()
	web.add(50)
	measure()
	scheduler.start()
	c.bound(fmt.Sprintf("web-%d", web.made-1))
	web.add(50)
	c.api.crash()
	c.api.start()
	c.ready()
	measure()
	web.add(50)
	web.allOn("free-")
}

// choosy is what pods ask for whose goal is missed on busy nodes.
var choosy = map[string]string{"cotenant.dev/profile": "web", "cotenant.dev/class": "high", "cotenant.dev/goal": "85%"}

// replicas are pods web-0, web-1, … that ask for that.
type replicas struct {
	c    *cluster
	made int
}

func (r *replicas) add(more int) {
	r.c.t.Helper()
	for range more {
		r.c.pod(fmt.Sprintf("web-%d", r.made), ours, choosy)
		r.made++
	}
}

// allOn waits until all are bound, to nodes whose names begin like that.
func (r *replicas) allOn(prefix string) {
	r.c.t.Helper()
	for i := range r.made {
		if node := r.c.bound(fmt.Sprintf("web-%d", i)); !strings.HasPrefix(node, prefix) {
			r.c.t.Errorf("web-%d is on %s, where its goal is missed", i, node)
		}
	}
}

// load is a daemon as far as an agent's publisher sees one: it tells how many of 10 CPUs are used.
type load struct {
	socket string
	used   atomic.Int64
	asked  atomic.Int64
}

func (c *cluster) load(node string, used int64) *load {
	c.t.Helper()
	l := &load{socket: filepath.Join(c.dir, node+".sock")}
	l.used.Store(used)
	listener, err := net.Listen("unix", l.socket)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if _, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
				// A load that moves is written each time.
				used := float64(l.used.Load()) + 0.7*float64(l.asked.Add(1)%2)
				_ = json.NewEncoder(conn).Encode(map[string]any{"ok": using(used)})
			}
			conn.Close()
		}
	}()
	return l
}

// Pods are bound while etcd is away and back, and while no agent lives; what agents tell counts again when they are
// back.
// Holds cluster/restarts.
func TestEtcdAndAgentsMayEndInMidWork(t *testing.T) {
	c := plane(t)
	c.schedule(fmt.Sprintf(`  - schedulerName: %s
    plugins: { multiPoint: { enabled: [{ name: Cotenant, weight: 20 }] } }
    pluginConfig: [{ name: Cotenant, args: { staleSeconds: 30 } }]
`, ours))
	var agents []*program
	var loads []*load
	for node, used := range map[string]int64{"left-1": 9, "left-2": 9, "right-1": 0, "right-2": 0} {
		c.node(node)
		load := c.load(node, used)
		loads = append(loads, load)
		agents = append(agents, c.run("cotenant-node", "-nri", filepath.Join(c.dir, "none"), "-kubelet", "",
			"-socket", load.socket, "-node", node, "-kubeconfig", c.kubeconfig(node, c.agent(node).BearerToken)))
	}
	c.profile("web", 0.01, 0.8)
	c.settle("right-", choosy)
	web := &replicas{c: c}
	web.add(40)
	c.etcd.crash()
	c.eventually("the API server misses etcd", func() bool { return c.readyz() != nil })
	c.etcd.start()
	c.ready()
	web.add(40)
	web.allOn("right-")
	web.add(40)
	for _, agent := range agents {
		agent.crash()
	}
	web.add(40)
	for _, load := range loads {
		load.used.Store(9 - load.used.Load())
	}
	// When data are stale they keep no pod from any node.
	c.eventually("a pod goes where it was kept from", func() bool { return strings.HasPrefix(c.probe(choosy), "left-") })
	web.add(40)
	for _, agent := range agents {
		agent.start()
	}
	c.settle("left-", choosy)
	web.allOn("") // some were bound while nothing was known
}
