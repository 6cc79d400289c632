package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"cotenant.dev/kubernetes/internal/daemon"
	"cotenant.dev/kubernetes/internal/publish"
)

func TestARealSchedulerAvoidsNodesWhereSpeedIsLost(t *testing.T) {
	c, _ := start(t)
	for _, name := range []string{"busy", "free", "unknown"} {
		c.node(name)
	}
	// Nobody knows anything yet: pods are bound all the same.
	c.pod("early", ours, nil)
	c.bound("early")
	c.event("early", "interference is not considered: no profile of workload early")
	c.profile("web", 0.1, 0.8)
	c.measure("busy", 9)
	c.measure("free", 0)
	as := map[string]string{"cotenant.dev/profile": "web"}
	// Objects reach the scheduler in their own time.
	for i := 0; ; i++ {
		name := fmt.Sprintf("web-%d", i)
		c.pod(name, ours, as)
		if node := c.bound(name); node == "free" {
			c.event(name, "on free the pod is predicted to lose")
			break
		} else if i == 20 {
			t.Fatalf("the %dth pod goes to %s", i, node)
		}
	}
	// Where its goal would be missed it waits, and goes where nothing is known otherwise.
	goal := map[string]string{"cotenant.dev/profile": "web", "cotenant.dev/goal": "85%"}
	c.measure("free", 5)
	for i := 0; ; i++ {
		name := fmt.Sprintf("with-goal-%d", i)
		c.pod(name, ours, goal)
		if node := c.bound(name); node == "unknown" {
			break
		} else if i == 20 {
			t.Fatalf("the %dth pod with a goal goes to %s", i, node)
		}
	}
	c.measure("unknown", 5)
	waits := ""
	for i := 0; waits == ""; i++ {
		name := fmt.Sprintf("waits-%d", i)
		c.pod(name, ours, goal)
		c.eventually("the scheduler decides on "+name, func() bool {
			pod, err := c.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if pod.Spec.NodeName == "" && slices.ContainsFunc(pod.Status.Conditions, func(of v1.PodCondition) bool { return of.Reason == v1.PodReasonUnschedulable }) {
				waits = name
			}
			return pod.Spec.NodeName != "" || waits != ""
		})
		if i == 20 {
			t.Fatalf("the %dth pod does not wait", i)
		}
	}
	c.event(waits, "and its goal is 85%")
	c.measure("unknown", 0)
	if node := c.bound(waits); node != "unknown" {
		t.Errorf("it waits for %s", node)
	}
}

func TestTheTableIsReadable(t *testing.T) {
	c, _ := start(t)
	c.node("node-1")
	c.measure("node-1", 6.2)
	table, err := c.client.RESTClient().Get().AbsPath("/apis/cotenant.dev/v1alpha1/nodecontentions").
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Do(context.Background()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var read metav1.Table
	if err := yaml.Unmarshal(table, &read); err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, column := range read.ColumnDefinitions {
		columns = append(columns, column.Name)
	}
	if got := fmt.Sprint(columns, read.Rows[0].Cells[:4]); got != "[Name Cores Memory Cache Worst Mode Seen] [node-1 62% ? ?]" {
		t.Error(got)
	}
}

func TestAnAgentWritesTheObjectOfItsOwnNode(t *testing.T) {
	c, _ := start(t)
	as := rest.CopyConfig(c.config)
	as.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:cotenant-system:cotenant-node",
		Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {"node-1"}},
	}
	agent, err := dynamic.NewForConfig(as)
	if err != nil {
		t.Fatal(err)
	}
	c.node("node-1")
	c.node("node-2")
	write := func(name string) error {
		return publish.New(agent, name).Publish(context.Background(), daemon.Node{Mode: "observe"})
	}
	if err := write("node-1"); err != nil {
		t.Fatal(err)
	}
	c.eventually("another node's is refused", func() bool {
		err := write("node-2")
		return err != nil && strings.Contains(err.Error(), "an agent writes the NodeContention of its own node")
	})
	if err := write("node-1"); err != nil {
		t.Error(err)
	}
}

// What is bound before, between and after is where the goal is kept, and nothing is left over.
func TestSchedulerAndAPIServerMayEndInMidWork(t *testing.T) {
	c, scheduler := start(t)
	for i := range 4 {
		c.node(fmt.Sprintf("busy-%d", i))
		c.measure(fmt.Sprintf("busy-%d", i), 9)
		c.node(fmt.Sprintf("free-%d", i))
		c.measure(fmt.Sprintf("free-%d", i), 0)
	}
	c.profile("web", 0.01, 0.8)
	as := map[string]string{"cotenant.dev/profile": "web", "cotenant.dev/goal": "85%"}
	// Until the scheduler has heard of the nodes it may send pods anywhere.
	known := 0
	c.eventually("the scheduler knows the nodes", func() bool {
		known++
		name := fmt.Sprintf("first-%d", known)
		c.pod(name, ours, as)
		free := strings.HasPrefix(c.bound(name), "free-")
		if !free {
			known = 0
		}
		return known >= 20
	})
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
	scheduler.start()
	c.bound(fmt.Sprintf("web-%d", made-1))
	more()
	c.api.crash()
	c.api.start()
	c.ready()
	more()
	for i := range made {
		if node := c.bound(fmt.Sprintf("web-%d", i)); !strings.HasPrefix(node, "free-") {
			t.Errorf("web-%d is on %s, where its goal is missed", i, node)
		}
	}
}
