package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"cotenant.dev/kubernetes/api/v1alpha1"
	"cotenant.dev/kubernetes/internal/daemon"
	"cotenant.dev/kubernetes/internal/publish"
)

// Promise cluster/restarts: Refused pods are tried again when data change; all pods are bound although scheduler, API
// server, etcd and agents restart.
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
	goal := map[string]string{"cotenant.dev/profile": "web", "cotenant.dev/class": "high", "cotenant.dev/goal": "85%"}
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

func TestTheTablesAreReadable(t *testing.T) {
	c, _ := start(t)
	c.node("node-1")
	c.measure("node-1", 6.2)
	c.node("node-2")
	if err := c.seen(c.dynamic, "web", "node-2", 1.6); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"nodecontentions":                     "[Name Cores Memory Cache Worst Mode Seen] [node-1 62% ? ?]",
		"namespaces/default/workloadprofiles": "[Name Nodes Cores Memory Cache Sensitive-To Age] [web 1 1.6 ?]",
	} {
		text, err := c.client.RESTClient().Get().AbsPath("/apis/cotenant.dev/v1alpha1/"+path).
			SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Do(context.Background()).Raw()
		if err != nil {
			t.Fatal(err)
		}
		var table metav1.Table
		if err := yaml.Unmarshal(text, &table); err != nil {
			t.Fatal(err)
		}
		var columns []string
		for _, column := range table.ColumnDefinitions {
			columns = append(columns, column.Name)
		}
		if got := fmt.Sprint(columns, table.Rows[0].Cells[:4]); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// agent has the token of an agent's pod on a node, which names the node.
func (c *cluster) agent(node string) *rest.Config {
	c.t.Helper()
	pods, name := c.client.CoreV1().Pods(system), "agent-of-"+node
	pod, err := pods.Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		pod, err = pods.Create(context.Background(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
			ServiceAccountName: "cotenant-node", NodeName: node, Containers: []v1.Container{{Name: "bridge", Image: "none"}},
		}}, metav1.CreateOptions{})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return c.as(c.token("cotenant-node", pod))
}

// asAgent speaks with the API server as the agent of a node does.
func (c *cluster) asAgent(node string) *dynamic.DynamicClient {
	c.t.Helper()
	client, err := dynamic.NewForConfig(c.agent(node))
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// seen publishes, as the bridge of a node does, how many CPUs a pod of a workload used for long enough.
func (c *cluster) seen(as dynamic.Interface, name, node string, used float64) error {
	now := time.Now().Add(-10 * time.Minute)
	publisher := publish.NewAt(as, node, func() time.Time { return now })
	for ; !now.After(time.Now()); now = now.Add(10 * time.Second) {
		if err := publisher.Publish(context.Background(), daemon.Node{Mode: "observe", Containers: []daemon.Guest{
			{Namespace: "default", Pod: name + "-0", Container: "main", Workload: name, Use: map[string]float64{"cores": used}},
		}}); err != nil {
			return err
		}
	}
	return nil
}

// Holds cluster/rights.
func TestAnAgentWritesTheObjectOfItsOwnNode(t *testing.T) {
	c, _ := start(t)
	c.node("node-1")
	c.node("node-2")
	agent := c.asAgent("node-1")
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

// A node that is taken over writes no profile by hand, which would count for more than what all nodes have seen, and
// nothing in the name of another node.
// Holds cluster/rights.
func TestAnAgentWritesItsOwnPartOfProfiles(t *testing.T) {
	c, _ := start(t)
	for _, node := range []string{"node-1", "node-2"} {
		c.node(node)
		if err := c.seen(c.asAgent(node), "web", node, 1); err != nil {
			t.Fatal(err)
		}
	}
	agent := c.asAgent("node-2").Resource(v1alpha1.WorkloadProfileResource).Namespace("default")
	refused := func(want string, write func() error) {
		t.Helper()
		c.eventually("it is refused: "+want, func() bool {
			err := write()
			return err != nil && strings.Contains(err.Error(), want)
		})
	}
	refused("an agent writes no spec", func() error {
		_, err := agent.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cotenant.dev/v1alpha1", "kind": "WorkloadProfile", "metadata": map[string]any{"generateName": "false-"},
			"spec": map[string]any{"resources": []any{map[string]any{"kind": "cores"}}},
		}}, metav1.CreateOptions{})
		return err
	})
	change := func(change func(part map[string]any)) error {
		object, err := agent.Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		parts, _, err := unstructured.NestedSlice(object.Object, "status", "nodes")
		if err != nil || len(parts) != 2 {
			t.Fatalf("%v, %v", parts, err)
		}
		change(parts[0].(map[string]any))
		if err := unstructured.SetNestedSlice(object.Object, parts, "status", "nodes"); err != nil {
			t.Fatal(err)
		}
		_, err = agent.UpdateStatus(t.Context(), object, metav1.UpdateOptions{})
		return err
	}
	for _, wrong := range []func(map[string]any){
		func(part map[string]any) { part["observedAt"] = "2027-01-01T00:00:00Z" },
		func(part map[string]any) { part["node"] = "node-3" },
	} {
		refused("an agent writes its own node's part", func() error { return change(wrong) })
	}
	if err := change(func(map[string]any) {}); err != nil {
		t.Error(err)
	}
	// What people wrote stays, and is in no agent's way.
	all := c.dynamic.Resource(v1alpha1.WorkloadProfileResource).Namespace("default")
	spec := []byte(`{"spec":{"resources":[{"kind":"cores","use":{"mean":1,"spread":0,"count":1}}]}}`)
	if _, err := all.Patch(t.Context(), "web", types.MergePatchType, spec, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.seen(c.asAgent("node-2"), "web", "node-2", 2); err != nil {
		t.Error(err)
	}
}
