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
	as := map[string]string{"cotenant.dev/profile": "web", "cotenant.dev/class": "high", "cotenant.dev/goal": "85%"}
	c.settle("free-", as)
	made := 0
	more := func() {
		for range 50 {
			c.pod(fmt.Sprintf("web-%d", made), ours, as)
			made++
		}
	}
	more()
	c.bound("web-0")
	scheduler.crash()
	more()
	measure()
	scheduler.start()
	c.bound(fmt.Sprintf("web-%d", made-1))
	more()
	c.api.crash()
	c.api.start()
	c.ready()
	measure()
	more()
	for i := range made {
		if node := c.bound(fmt.Sprintf("web-%d", i)); !strings.HasPrefix(node, "free-") {
			t.Errorf("web-%d is on %s, where its goal is missed", i, node)
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

// Pods are bound while etcd is away and back, and while no agent lives; what agents tell counts again when they are back.
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
	as := map[string]string{"cotenant.dev/profile": "web", "cotenant.dev/class": "high", "cotenant.dev/goal": "85%"}
	c.settle("right-", as)
	made := 0
	more := func() {
		for range 40 {
			c.pod(fmt.Sprintf("web-%d", made), ours, as)
			made++
		}
	}
	more()
	c.etcd.crash()
	c.eventually("the API server misses etcd", func() bool { return c.readyz() != nil })
	c.etcd.start()
	c.ready()
	more()
	for i := range made {
		if node := c.bound(fmt.Sprintf("web-%d", i)); !strings.HasPrefix(node, "right-") {
			t.Errorf("web-%d is on %s, where its goal is missed", i, node)
		}
	}
	more()
	for _, agent := range agents {
		agent.crash()
	}
	more()
	for _, load := range loads {
		load.used.Store(9 - load.used.Load())
	}
	// When data are stale they keep no pod from any node.
	c.eventually("a pod goes where it was kept from", func() bool { return strings.HasPrefix(c.probe(as), "left-") })
	more()
	for _, agent := range agents {
		agent.start()
	}
	c.settle("left-", as)
	for i := range made {
		c.bound(fmt.Sprintf("web-%d", i))
	}
}
