package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"cotenant.dev/kubernetes/api/v1alpha1"
	"cotenant.dev/kubernetes/internal/daemon"
)

// said is what a daemon says: two containers on 10 CPUs, of which one hurts the other.
const said = `{"version": "0.1.0", "mode": "observe", "age_s": 1.5,
	"shared": [{"what": "cores", "name": "cores", "capacity": 10, "use": 4},
	           {"what": "cache", "name": "llc 0", "capacity": 1000000, "use": 20000000},
	           {"what": "memory", "name": "package 0", "capacity": 1000000000, "use": null},
	           {"what": "cores", "name": "uncounted", "capacity": 90, "use": null},
	           {"what": "other", "name": "x", "capacity": 1, "use": 1}],
	"containers": [
		{"namespace": "shop", "pod": "db-0", "container": "main", "workload": "db", "class": "high", "goal": 0.9, "kept": 0.81234, "use": {"cores": 1}},
		{"namespace": "shop", "pod": "db-0", "container": "side", "workload": "db", "class": "normal", "use": {"cores": 0.5}},
		{"namespace": "batch", "pod": "job-x", "container": "main", "workload": "job", "class": "low", "use": {"cores": 2, "cache": 10000000}}],
	"interference": [{"victim": "shop/db-0/main", "aggressor": "batch/job-x/main", "loss": 0.1, "low": 0.08, "high": 0.12, "events": 9}]}`

func node(t *testing.T) daemon.Node {
	t.Helper()
	var node daemon.Node
	if err := json.Unmarshal([]byte(said), &node); err != nil {
		t.Fatal(err)
	}
	return node
}

// cluster is an API server with one node, and a publisher with a clock.
type cluster struct {
	*Publisher
	client *fake.FakeDynamicClient
	at     time.Time
}

func newCluster() *cluster {
	kinds := map[schema.GroupVersionResource]string{
		v1alpha1.NodeContentionResource:  "NodeContentionList",
		v1alpha1.WorkloadProfileResource: "WorkloadProfileList",
		nodes:                            "NodeList",
	}
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n1", "uid": "u1"}}}
	c := &cluster{client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, object), at: time.Unix(1_800_000_000, 0)}
	c.Publisher = New(c.client, "n1")
	c.now = func() time.Time { return c.at }
	return c
}

// writes since the last call.
func (c *cluster) writes() string {
	var verbs []string
	for _, action := range c.client.Actions() {
		if verb := action.GetVerb(); verb != "get" {
			verbs = append(verbs, verb+" "+action.GetResource().Resource)
		}
	}
	c.client.ClearActions()
	return strings.Join(verbs, ", ")
}

// profile as the API server has it.
func (c *cluster) profile(t *testing.T, namespace, name string) (profile v1alpha1.WorkloadProfile) {
	t.Helper()
	object, err := c.client.Resource(v1alpha1.WorkloadProfileResource).Namespace(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &profile); err != nil {
		t.Fatal(err)
	}
	return profile
}

// run publishes for as long as that.
func (c *cluster) run(t *testing.T, node daemon.Node, length time.Duration) {
	t.Helper()
	for end := c.at.Add(length); c.at.Before(end); c.at = c.at.Add(10 * time.Second) {
		if err := c.Publish(context.Background(), node); err != nil {
			t.Fatal(err)
		}
	}
}

// Promise cluster/objects: Node objects and profiles hold fresh, counted data, goals first; a hanging API server
// holds nothing up, and unused profiles are removed.
func TestTheNodesObjectIsMadeAndChanged(t *testing.T) {
	c, ctx, node := newCluster(), context.Background(), node(t)
	step := func(want string) {
		t.Helper()
		if err := c.Publish(ctx, node); err != nil {
			t.Fatal(err)
		}
		if got := c.writes(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		c.at = c.at.Add(10 * time.Second)
	}
	step("patch nodecontentions, create nodecontentions")
	step("") // nothing has changed
	step("")
	step("patch nodecontentions") // it lives
	*node.Shared[0].Use = 4.3
	step("")
	*node.Shared[0].Use = 5
	step("patch nodecontentions")
	goal := 0.8
	node.Containers[0].Goal = &goal
	step("patch nodecontentions")
	node.Interference[0].Aggressor = "batch/other/main"
	step("patch nodecontentions")
	node.Interference = append(node.Interference, daemon.Pair{Victim: "a", Aggressor: "b"})
	step("patch nodecontentions")
	slices.Reverse(node.Interference) // who is worst of those that are alike may change each time
	step("")
	node.Interference = []daemon.Pair{{Victim: "shop/db-0/main", Aggressor: "batch/job-x/main", Loss: 0.1}}
	node.Containers = node.Containers[1:]
	step("patch nodecontentions")
	object, err := c.client.Resource(v1alpha1.NodeContentionResource).Get(ctx, "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got v1alpha1.NodeContention
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &got); err != nil {
		t.Fatal(err)
	}
	if owner := got.OwnerReferences; len(owner) != 1 || owner[0].UID != "u1" {
		t.Errorf("owner: %v", owner)
	}
	s := got.Status
	want := `{50% ? 20/s shop/db-0/main loses 10% to batch/job-x/main} 4 [job-x]`
	if got := fmt.Sprintf("%v %d [%s]", s.Summary, len(s.Shared), s.Containers[0].Pod); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	node.AgeS = 61
	if err := c.Publish(ctx, node); err == nil {
		t.Error("stale data are published")
	}
}

// Of more containers than fit, those with a goal are told.
// Holds cluster/objects.
func TestContainersOfClassHighComeFirst(t *testing.T) {
	node := node(t)
	high := node.Containers[0]
	node.Containers = nil
	for i := range v1alpha1.MaxContainers + 9 {
		node.Containers = append(node.Containers, daemon.Guest{Namespace: "batch", Pod: fmt.Sprint(i), Container: "main", Class: "low"})
	}
	node.Containers = append(node.Containers, daemon.Guest{Namespace: "batch", Pod: "x", Container: "main", Class: "normal"}, high)
	s := status(node, time.Unix(0, 0))
	if len(s.Containers) != v1alpha1.MaxContainers || s.Omitted != 10 || s.Containers[0].Pod != high.Pod || s.Containers[1].Pod != "0" {
		t.Errorf("%d, %d omitted: %v", len(s.Containers), s.Omitted, s.Containers[:2])
	}
}

// Holds cluster/objects.
func TestProfilesAreMerged(t *testing.T) {
	c, ctx, node := newCluster(), context.Background(), node(t)
	others := &v1alpha1.WorkloadProfile{
		TypeMeta:   metav1.TypeMeta{APIVersion: "cotenant.dev/v1alpha1", Kind: "WorkloadProfile"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Spec:       v1alpha1.WorkloadProfileSpec{Resources: []v1alpha1.ProfileResource{{Kind: v1alpha1.Cores}}},
	}
	for i := range 20 {
		age := time.Duration(i) * 12 * time.Hour
		others.Status.Nodes = append(others.Status.Nodes, v1alpha1.NodeProfile{Node: fmt.Sprintf("other-%02d", i), ObservedAt: metav1.NewTime(c.at.Add(-age)), Resources: []v1alpha1.ProfileResource{}})
	}
	object, err := toUnstructured(others)
	if err != nil {
		t.Fatal(err)
	}
	profiles := c.client.Resource(v1alpha1.WorkloadProfileResource)
	if _, err := profiles.Namespace("shop").Create(ctx, object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 61 {
		node.Containers[0].Use["cores"] = 1 + float64(i%2)*0.2
		if err := c.Publish(ctx, node); err != nil {
			t.Fatal(err)
		}
		c.at = c.at.Add(10 * time.Second)
	}
	db := c.profile(t, "shop", "db")
	if len(db.Spec.Resources) != 1 || len(db.Status.Nodes) != 15 {
		t.Fatalf("%d nodes: those of a week, and ours", len(db.Status.Nodes))
	}
	own := db.Status.Nodes[0]
	// Both containers of the pod together. It loses 10 % at a pressure of 2 of 10 CPUs.
	use, sensitivity := own.Resources[0].Use, own.Resources[0].Sensitivity
	if own.Node != "n1" || own.Resources[0].Kind != v1alpha1.Cores || math.Abs(use.Mean-1.6) > 0.01 || math.Abs(use.Spread-0.1) > 0.01 || use.Count != 61 {
		t.Errorf("use: %v %v", own, use)
	}
	if sensitivity.Mean != 0.5 || sensitivity.Spread != 0.05 || sensitivity.Count != 9 {
		t.Errorf("sensitivity: %v", sensitivity)
	}
	if got, want := fmt.Sprintf("%v", db.Status.Summary), `{15 1.6 ? ? cores 0.5}`; got != want {
		t.Errorf("summary: %s, want %s", got, want)
	}
	if got, want := fmt.Sprintf("%v", c.profile(t, "batch", "job").Status.Summary), `{1 2 ? 0.01 GB/s }`; got != want {
		t.Errorf("summary: %s, want %s", got, want)
	}
	if job := c.profile(t, "batch", "job"); len(job.Status.Nodes) != 1 || job.Status.Nodes[0].Resources[0].Use.Mean != 2 {
		t.Errorf("a profile that was not there: %v", job)
	}
	c.writes()
	c.run(t, node, 11*time.Minute)
	if got := c.writes(); strings.Contains(got, "workloadprofiles") {
		t.Errorf("nothing has changed: %s", got)
	}
}

// What was lost to one aggressor is known when it has gone, another has come, and the bridge was started anew.
func TestWhatWasLostIsRemembered(t *testing.T) {
	c := newCluster()
	sensitive := func(want string) {
		t.Helper()
		if got := c.profile(t, "shop", "db").Status.Summary.Sensitive; got != want {
			t.Errorf("sensitive to %q, want %q", got, want)
		}
	}
	cores, cache, alone := node(t), node(t), node(t)
	c.run(t, cores, 11*time.Minute)
	sensitive("cores 0.5")
	// It presses with 5 cache contents a millisecond, and loses a quarter.
	cache.Containers[2].Use = map[string]float64{"cache": 5e9}
	cache.Interference[0].Loss = 0.25
	c.run(t, cache, 11*time.Minute)
	sensitive("cores 0.5, cache 0.05")
	alone.Containers, alone.Interference = alone.Containers[:2], nil
	c.run(t, alone, 11*time.Minute)
	sensitive("cores 0.5, cache 0.05")
	used := func() *v1alpha1.Measured { return c.profile(t, "shop", "db").Status.Nodes[0].Resources[0].Use }
	before := used().Count

	again := func() {
		c.Publisher = NewAt(c.client, "n1", func() time.Time { return c.at })
	}
	again()
	alone.Containers[0].Use["cores"] = 2
	c.run(t, alone, 11*time.Minute)
	sensitive("cores 0.5, cache 0.05")
	if use := used(); use.Count <= before || use.Mean <= 1.5 || use.Mean >= 2.5 {
		t.Errorf("what was used before the start counts, too: %v, %d before", use, before)
	}
	// What is seen anew replaces what is known, also where it is less.
	again()
	cores.Interference[0].Loss = 0.02
	c.run(t, cores, 11*time.Minute)
	sensitive("cores 0.1, cache 0.05")
	// What was not seen for a week is forgotten, by a bridge that runs on and by one that begins.
	c.at = c.at.Add(v1alpha1.Oldest)
	c.run(t, alone, 11*time.Minute)
	sensitive("")
	c.run(t, cores, 11*time.Minute)
	sensitive("cores 0.1")
	c.at = c.at.Add(v1alpha1.Oldest)
	again()
	c.run(t, alone, 11*time.Minute)
	sensitive("")
}

func TestMomentsAreJoined(t *testing.T) {
	var all, before, since moments
	for i, value := range []float64{1, 4, 2, 8, 5, 7} {
		all.add(value)
		if i < 4 {
			before.add(value)
		} else {
			since.add(value)
		}
	}
	since.join(*before.measured())
	if got, want := *since.measured(), *all.measured(); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if since.join(v1alpha1.Measured{Mean: 1, Count: 1 << 60}); since.count > 2*memory {
		t.Errorf("%v", since)
	}
}

// One profile that another node writes at the same time, or that is not taken, keeps no other from being written.
func TestAProfileThatIsNotWrittenIsTriedAgain(t *testing.T) {
	profiles := schema.GroupResource{Group: "cotenant.dev", Resource: "workloadprofiles"}
	for _, c := range []struct {
		verb   string
		err    error
		failed bool
	}{
		{"update", apierrors.NewConflict(profiles, "db", errors.New("another version")), false},
		{"create", apierrors.NewAlreadyExists(profiles, "db"), false},
		{"create", apierrors.NewInvalid(schema.GroupKind{}, "db", nil), true},
	} {
		p, ctx := newCluster(), context.Background()
		p.book.add(node(t), p.at)
		for _, seen := range p.book {
			seen.use[v1alpha1.Cores].count = samples
		}
		refuse := true
		p.client.PrependReactor(c.verb, "workloadprofiles", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return refuse && action.GetNamespace() == "shop", nil, c.err
		})
		// Maps are walked at random: job comes before db or after it.
		if err := p.profiles(ctx); (err != nil) != c.failed {
			t.Errorf("%v: %v", c.err, err)
		}
		if _, written := p.parts[key{"shop", "db"}]; written || len(p.parts) != 1 {
			t.Errorf("%v: written are %v", c.err, p.parts)
		}
		refuse = false
		if err := p.profiles(ctx); err != nil || len(p.parts) != 2 {
			t.Errorf("%v: %v, written are %v", c.err, err, p.parts)
		}
	}
}

// The state of the node itself would be stale meanwhile.
// Holds cluster/objects.
func TestAnAPIServerThatHangsHoldsNothingUp(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		<-r.Context().Done()
	}))
	defer server.Close()
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	p := New(client, "n1")
	p.patience = 50 * time.Millisecond
	p.book.add(node(t), p.now())
	for _, seen := range p.book {
		seen.use[v1alpha1.Cores].count = samples
	}
	// Those that wait for their turn are not asked about, and not said to have failed.
	if err := p.profiles(context.Background()); err == nil || strings.Count(err.Error(), "the profile of") != 1 || asked.Load() != 1 {
		t.Errorf("%v, asked %d times", err, asked.Load())
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	b, at := book{}, time.Unix(0, 0)
	for i := range 2 * workloads {
		b.of(key{"shop", fmt.Sprint(i)}, at.Add(time.Duration(i)))
	}
	if len(b) != workloads || b[key{"shop", "0"}] != nil {
		t.Errorf("%d", len(b))
	}
	var m moments
	for i := range 10 * memory {
		m.add(float64(i / (5 * memory)))
	}
	if m.count > memory || m.mean < 0.999 {
		t.Errorf("what is old counts: %v", m)
	}
	for value, want := range map[float64]float64{0: 0, 1234567: 1230000, 0.0012345: 0.00123, -9.999: -10, 1e-310: 0, math.Inf(1): 0} {
		if got := short(value); math.Abs(got-want) > math.Abs(want)*1e-12 {
			t.Errorf("%v: %v", value, got)
		}
	}
}
