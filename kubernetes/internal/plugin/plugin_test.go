package plugin

import (
	"context"
	"fmt"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"cotenant.dev/kubernetes/api/v1alpha1"
)

// fakeNode is a node as the scheduler has it in a cycle.
type fakeNode struct {
	fwk.NodeInfo
	node       *v1.Node
	pods       []fwk.PodInfo
	generation int64
}

func (n *fakeNode) Node() *v1.Node         { return n.node }
func (n *fakeNode) GetPods() []fwk.PodInfo { return n.pods }
func (n *fakeNode) GetGeneration() int64   { return n.generation }

type fakePod struct {
	fwk.PodInfo
	pod *v1.Pod
}

func (p fakePod) GetPod() *v1.Pod { return p.pod }

type fakeCycle struct {
	fwk.CycleState
	data map[fwk.StateKey]fwk.StateData
}

func (c *fakeCycle) Read(key fwk.StateKey) (fwk.StateData, error) {
	if data, there := c.data[key]; there {
		return data, nil
	}
	return nil, fwk.ErrNotFound
}

func (c *fakeCycle) Write(key fwk.StateKey, data fwk.StateData) { c.data[key] = data }

// world has a scheduler's plugin, nodes, and a clock.
type world struct {
	t        *testing.T
	plugin   *Plugin
	recorder *events.FakeRecorder
	nodes    []fwk.NodeInfo
	now      time.Time
}

// serial is a Parallelizer of one worker.
type serial struct{}

func (serial) Until(_ context.Context, pieces int, do workqueue.DoWorkPieceFunc, _ string) {
	for i := range pieces {
		do(i)
	}
}

func newWorld(t *testing.T) *world {
	recorder := events.NewFakeRecorder(64)
	w := &world{t: t, recorder: recorder, now: time.Unix(1_800_000_000, 0)}
	w.plugin = newPlugin(defaults(), recorder, serial{})
	w.plugin.known.now = func() time.Time { return w.now }
	return w
}

// node has 10 CPUs, of which so many are used.
func (w *world) node(name string, used float64, pods ...*v1.Pod) {
	var infos []fwk.PodInfo
	for _, pod := range pods {
		infos = append(infos, fakePod{pod: pod})
	}
	w.nodes = append(w.nodes, &fakeNode{node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, pods: infos, generation: 1})
	w.measure(name, used)
}

func (w *world) measure(name string, used float64, containers ...v1alpha1.Container) {
	w.plugin.known.setNode(v1alpha1.NodeContention{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: v1alpha1.NodeContentionStatus{
			ObservedAt: metav1.NewTime(w.now),
			Shared:     []v1alpha1.Share{{Kind: v1alpha1.Cores, Name: "cores", Capacity: 10, Use: &used}},
			Containers: containers,
		},
	})
}

// profile: a pod uses so many CPUs, and loses so much for each unit of pressure.
func (w *world) profile(name string, use, sensitivity, spread float64) {
	w.plugin.known.setProfile(v1alpha1.WorkloadProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: v1alpha1.WorkloadProfileSpec{Resources: []v1alpha1.ProfileResource{{
			Kind: v1alpha1.Cores, Use: &v1alpha1.Measured{Mean: use}, Sensitivity: &v1alpha1.Measured{Mean: sensitivity, Spread: spread},
		}}},
	})
}

// pod of a workload; it runs since a minute.
func (w *world) pod(of string, annotations map[string]string) *v1.Pod {
	started := metav1.NewTime(w.now.Add(-time.Minute))
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: of, Annotations: annotations},
		Status:     v1.PodStatus{Phase: v1.PodRunning, StartTime: &started},
	}
}

// keeping a share of its speed takes class high.
func keeping(goal string) map[string]string {
	return map[string]string{"cotenant.dev/class": "high", "cotenant.dev/goal": goal}
}

// schedule gives the score of each node, or why it was refused; and binds the pod to the best.
func (w *world) schedule(pod *v1.Pod) map[string]string {
	w.t.Helper()
	ctx, cycle, p := context.Background(), &fakeCycle{data: map[fwk.StateKey]fwk.StateData{}}, w.plugin
	said := map[string]string{}
	_, status := p.PreFilter(ctx, cycle, pod, w.nodes)
	skip := status.Code() == fwk.Skip
	var left []fwk.NodeInfo
	for _, node := range w.nodes {
		status := p.Filter(ctx, cycle, pod, node)
		if !skip && !status.IsSuccess() {
			// Of any other refusal kube-scheduler would try to evict somebody.
			if status.Code() != fwk.UnschedulableAndUnresolvable {
				w.t.Errorf("%s: %v", node.Node().Name, status.Code())
			}
			said[node.Node().Name] = status.Message()
			continue
		}
		if p.args.Filter && !status.IsSuccess() {
			w.t.Errorf("%s would not have been asked, and says: %s", node.Node().Name, status.Message())
		}
		left = append(left, node)
	}
	var scores fwk.NodeScoreList
	for range 2 { // a cycle may be judged again
		if status := p.PreScore(ctx, cycle, pod, left); status.Code() == fwk.Skip {
			return said
		}
		scores = nil
		for _, node := range left {
			score, status := p.Score(ctx, cycle, pod, node)
			if !status.IsSuccess() {
				w.t.Fatal(status)
			}
			scores = append(scores, fwk.NodeScore{Name: node.Node().Name, Score: score})
		}
		if status := p.NormalizeScore(ctx, cycle, pod, scores); !status.IsSuccess() {
			w.t.Fatal(status)
		}
	}
	best := ""
	for _, score := range scores {
		if score.Score < 0 || score.Score > 100 {
			w.t.Errorf("%v is no score", score)
		}
		said[score.Name] = fmt.Sprint(score.Score)
		if best == "" || score.Score > atoi(said[best]) {
			best = score.Name
		}
	}
	p.PostBind(ctx, cycle, pod, best)
	return said
}

func atoi(text string) (n int64) {
	_, _ = fmt.Sscan(text, &n)
	return n
}

func (w *world) expect(got map[string]string, want ...string) {
	w.t.Helper()
	for i := 0; i < len(want); i += 2 {
		if got[want[i]] != want[i+1] {
			w.t.Errorf("%s: %q, want %q; all: %v", want[i], got[want[i]], want[i+1], got)
		}
	}
}

func (w *world) event(want string) {
	w.t.Helper()
	select {
	case got := <-w.recorder.Events:
		if want == "" || !strings.Contains(got, want) {
			w.t.Errorf("event %q, want %q", got, want)
		}
	default:
		if want != "" {
			w.t.Errorf("no event, want %q", want)
		}
	}
}

// Promise cluster/scheduler: The scheduler prefers the node where least is lost and avoids nodes where a goal would
// be missed; unknown or stale data have no say.
func TestTheNodeOnWhichLeastIsLostIsPreferred(t *testing.T) {
	w := newWorld(t)
	w.profile("web", 2, 0.5, 0)
	w.profile("db", 1, 0.3, 0)
	w.node("empty", 0)
	w.node("half", 5)
	// The database loses 0.3 × 2/10 more; web loses 0.5 × 1/10.
	w.node("shared", 1, w.pod("db", nil))
	w.expect(w.schedule(w.pod("web", nil)), "empty", "100", "half", "75", "shared", "89")
	w.event("on empty the pod is predicted to lose 0.0% of its speed; weighted by class it costs those there 0.0%, " +
		"and with its own loss 0.0% in all; of 3 nodes the median is 11.0%, the worst 25.0%")
	// What it loses itself counts fourfold, if its class is high: 4 × 0.5 × 5/10.
	w.expect(w.schedule(w.pod("web", keeping("1%"))), "empty", "100", "half", "0", "shared", "74")
}

// Pods that came after the measurement are not in it; a burst does not end on one node.
// Holds cluster/scheduler.
func TestPodsThatWereNotMeasuredYetCount(t *testing.T) {
	w := newWorld(t)
	w.profile("web", 2, 0.5, 0)
	w.node("a", 0)
	w.node("empty", 0)
	web := w.pod("web", nil)
	w.expect(w.schedule(web), "a", "100")
	bound := w.pod("web", nil)
	bound.Status = v1.PodStatus{}
	a := w.nodes[0].(*fakeNode)
	a.pods, a.generation = []fwk.PodInfo{fakePod{pod: bound}}, 2
	// It loses 0.5 × 2/10, and so does the one that is there.
	w.expect(w.schedule(web), "a", "80")
	// Its last container runs only since the measurement.
	bound.Status = w.pod("web", nil).Status
	running := func(before time.Duration) v1.ContainerStatus {
		return v1.ContainerStatus{State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(w.now.Add(-before))}}}
	}
	bound.Status.ContainerStatuses = []v1.ContainerStatus{running(30 * time.Second), running(0), running(20 * time.Second)}
	a.generation = 3
	w.expect(w.schedule(web), "a", "80")
	// The next measurement has it.
	w.now = w.now.Add(10 * time.Second)
	w.measure("a", 2)
	w.measure("empty", 0)
	a.generation = 4
	w.expect(w.schedule(web), "a", "80")
}

// Holds cluster/scheduler.
func TestWhatIsUnknownOrStaleIsNeutral(t *testing.T) {
	w := newWorld(t)
	w.node("a", 0)
	w.node("b", 10)
	if got := w.schedule(w.pod("web", nil)); len(got) > 0 {
		t.Errorf("no profile: %v", got)
	}
	w.event("interference is not considered: no profile of workload web is known yet")
	w.schedule(w.pod("web", nil))
	w.event("") // it is said seldom
	// What was not said for the sake of the API server is said the next time.
	few := w.plugin.few
	w.plugin.few = flowcontrol.NewFakeNeverRateLimiter()
	w.schedule(w.pod("other", nil))
	w.event("")
	w.plugin.few = few
	w.schedule(w.pod("other", nil))
	w.event("no profile of workload other is known yet")
	w.profile("web", 2, 0.5, 0)
	w.expect(w.schedule(w.pod("web", nil)), "a", "100", "b", "50")
	w.event("on a the pod")
	// b is not heard of any more. It is as good as the others are.
	w.now = w.now.Add(61 * time.Second)
	w.measure("a", 4)
	w.node("c", 0)
	w.expect(w.schedule(w.pod("web", nil)), "a", "80", "b", "90", "c", "100")
	w.event("; 1 of 3 nodes had no fresh data")
	w.now = w.now.Add(61 * time.Second)
	w.expect(w.schedule(w.pod("web", keeping("99%"))), "a", "0", "b", "0")
	// An old object of a node that is heard of first is no news; one whose clock is wrong is, when it changes.
	w.plugin.known.setNode(v1alpha1.NodeContention{ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Status: v1alpha1.NodeContentionStatus{ObservedAt: metav1.NewTime(w.now.Add(-time.Hour))}})
	d := &fakeNode{node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "d"}}}
	if w.plugin.known.view(d, w.plugin.known.since(60)) != nil {
		t.Error("an hour old")
	}
	w.plugin.known.setNode(v1alpha1.NodeContention{ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Status: v1alpha1.NodeContentionStatus{ObservedAt: metav1.NewTime(w.now.Add(-time.Hour + 10*time.Second))}})
	for _, seconds := range []float64{60, 1e30} {
		if w.plugin.known.view(d, w.plugin.known.since(seconds)) == nil {
			t.Errorf("it has just been heard of; %v s", seconds)
		}
	}
}

// Holds cluster/scheduler.
func TestGoalsKeepPodsAway(t *testing.T) {
	w := newWorld(t)
	w.profile("web", 2, 0.5, 0)
	w.profile("db", 1, 0.5, 0.1)
	w.node("a", 5)
	w.expect(w.schedule(w.pod("web", keeping("80%"))),
		"a", "the pod would keep 75% of its speed, and its goal is 80%")
	db, goal := w.pod("db", keeping("99%")), 0.9
	w.node("b", 1, db)
	w.node("empty", 0)
	// The annotation alone is nobody's word on other pods: 0.05 + 0.1.
	w.expect(w.schedule(w.pod("web", nil)), "b", "85", "empty", "100")
	// (1 − 1 + 2)/10 × 0.5 lost, give or take 2 %. 0.05 + 4 × 0.1.
	w.measure("b", 1, v1alpha1.Container{Namespace: "shop", Pod: "db", Container: "main", Class: "high", Goal: &goal})
	w.expect(w.schedule(w.pod("web", nil)), "b", "55", "empty", "100")
	goal = 0.95
	w.measure("b", 1, v1alpha1.Container{Namespace: "shop", Pod: "db", Container: "main", Class: "high", Goal: &goal})
	w.expect(w.schedule(w.pod("web", nil)), "b", "shop/db would keep 90% of its speed, and its goal is 95%")
	w.plugin.args.Filter = false
	w.expect(w.schedule(w.pod("web", nil)), "b", "55", "empty", "100")
}

func TestClassHighAloneIsAGoal(t *testing.T) {
	source, err := os.ReadFile("../../../crates/cotenant-daemon/src/config.rs")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("const GOAL: f64 = %v;", defaultGoal); !strings.Contains(string(source), want) {
		t.Errorf("the daemon has not %q", want)
	}
	w := newWorld(t)
	w.profile("web", 2, 0.5, 0)
	w.node("a", 3)
	high := map[string]string{"cotenant.dev/class": "high"}
	for _, goal := range []string{"", "much"} {
		high["cotenant.dev/goal"] = goal
		w.expect(w.schedule(w.pod("web", high)), "a", "the pod would keep 85% of its speed, and its goal is 90%")
	}
	// One that is there alone, and loses 4/10 × 0.5.
	w.profile("db", 4, 0, 0)
	w.nodes = nil
	w.node("b", 1, w.pod("web", nil))
	w.expect(w.schedule(w.pod("db", nil)), "b", "100")
	w.measure("b", 1, v1alpha1.Container{Namespace: "shop", Pod: "web", Container: "main", Class: "high"})
	w.expect(w.schedule(w.pod("db", nil)), "b", "shop/web would keep 80% of its speed, and its goal is 90%")
}

// Scores are relative: where more is lost everywhere than a score can tell, nodes still differ.
// Holds cluster/scheduler.
func TestNodesDifferWhereMuchIsLostEverywhere(t *testing.T) {
	w := newWorld(t)
	w.profile("web", 2, 0.8, 0)
	for name, used := range map[string]float64{"a": 5, "b": 6, "c": 9} {
		w.node(name, used)
	}
	// 4 × 0.8 × 5/10 = 1.6 against 1.92 and 2.88.
	w.expect(w.schedule(w.pod("web", keeping("1%"))), "a", "100", "b", "68", "c", "0")
}

// The scheduler's watch may be ahead of ours: a pod that it tries again is judged by what it has heard, not by less.
func TestAPodIsTriedAgainWithTheDataThatWokeIt(t *testing.T) {
	w := newWorld(t)
	w.profile("web", 2, 0.5, 0)
	w.node("a", 0)
	web := w.pod("web", keeping("80%"))
	object := func(version string, used float64) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "a", "resourceVersion": version},
			"status": map[string]any{"observedAt": w.now.UTC().Format(time.RFC3339),
				"shared": []any{map[string]any{"kind": "cores", "name": "cores", "capacity": 10.0, "use": used}}},
		}}
	}
	retry := func(before, after any) {
		t.Helper()
		if hint, err := w.plugin.retry(klog.Background(), web, before, after); hint != fwk.Queue || err != nil {
			t.Errorf("%v, %v", hint, err)
		}
	}
	refused := "the pod would keep 75% of its speed, and its goal is 80%"
	ours := handler(w.plugin.known.setNode, w.plugin.known.forgetNode)
	ours.OnUpdate(nil, object("9", 5))
	w.expect(w.schedule(web), "a", refused)
	retry(object("9", 5), object("10", 0))
	w.expect(w.schedule(web), "a", "100")
	// Our watch comes later, with what is past.
	ours.OnUpdate(nil, object("9", 5))
	w.expect(w.schedule(web), "a", "100")
	ours.OnUpdate(nil, object("11", 5))
	w.expect(w.schedule(web), "a", refused)
	// So may the scheduler's.
	retry(object("9", 5), object("10", 0))
	w.expect(w.schedule(web), "a", refused)
	retry(object("12", 5), nil)
	w.expect(w.schedule(web), "a", "0") // nothing is known of any node
}

func TestNodesAreAskedWhereAGoalCouldBeMissed(t *testing.T) {
	w := newWorld(t)
	w.profile("web", 2, 0.5, 0)
	asked := func(pod *v1.Pod) bool {
		_, status := w.plugin.PreFilter(context.Background(), &fakeCycle{data: map[fwk.StateKey]fwk.StateData{}}, pod, w.nodes)
		return status.Code() != fwk.Skip
	}
	goal, own := 0.9, keeping("80%")
	kept := v1alpha1.Container{Namespace: "shop", Pod: "db", Class: "high", Goal: &goal}
	w.node("a", 0)
	for _, c := range []struct {
		containers []v1alpha1.Container
		want       bool
	}{{nil, false}, {[]v1alpha1.Container{kept}, true}, {[]v1alpha1.Container{kept, kept}, true}, {nil, false}, {[]v1alpha1.Container{kept}, true}} {
		w.measure("a", 0, c.containers...)
		if got := asked(w.pod("web", nil)); got != c.want {
			t.Errorf("%d containers with a goal: asked %v", len(c.containers), got)
		}
	}
	w.plugin.known.forgetNode(types.NamespacedName{Name: "a"})
	if asked(w.pod("web", nil)) || !asked(w.pod("web", own)) {
		t.Error("its own goal alone is left")
	}
	if asked(w.pod("web", map[string]string{"cotenant.dev/goal": "80%"})) {
		t.Error("only pods of class high have goals")
	}
}

// Nodes come, tell and go while others are judged by many threads.
func TestNodesComeAndGoWhileTheyAreJudged(t *testing.T) {
	w := newWorld(t)
	w.profile("web", 2, 0.5, 0)
	for i := range 50 {
		w.node(fmt.Sprint(i), 1, w.pod("web", nil))
	}
	since, done := w.plugin.known.since(60), make(chan struct{})
	var judges sync.WaitGroup
	for range 2 {
		judges.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					for _, node := range w.nodes {
						w.plugin.known.view(node, since)
					}
					goruntime.Gosched()
				}
			}
		})
	}
	for round := range 20 {
		for i := range 50 {
			w.plugin.known.forgetNode(types.NamespacedName{Name: fmt.Sprint(i)})
			w.measure(fmt.Sprint(i), float64(round))
		}
		w.profile("web", 2, float64(round), 0)
	}
	close(done)
	judges.Wait()
	if view := w.plugin.known.view(w.nodes[0], since); view == nil || view.Use[0] != 19 || view.Weighted[0] != 19 {
		t.Errorf("%+v", view)
	}
}

func TestPartsOfNodesAreOneProfile(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	part := func(node string, mean, spread float64, count int64) v1alpha1.NodeProfile {
		return v1alpha1.NodeProfile{Node: node, ObservedAt: metav1.NewTime(now), Resources: []v1alpha1.ProfileResource{{
			Kind: v1alpha1.Memory, Sensitivity: &v1alpha1.Measured{Mean: mean, Spread: spread, Count: count},
		}}}
	}
	// Means 0.1 and 0.5, one to three: 0.4. Second moments 0.01 + 0 and 0.25 + 0.01.
	profile := v1alpha1.WorkloadProfile{Status: v1alpha1.WorkloadProfileStatus{Nodes: []v1alpha1.NodeProfile{part("a", 0.1, 0, 10), part("b", 0.5, 0.1, 30)}}}
	folded, says := fold(profile, now)
	if got, want := fmt.Sprintf("%.4f %.4f %v", folded.Sensitivity[1], folded.Spread[1], says), "0.4000 0.1936 true"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// A node that lies weighs as 1,024 samples; what is older than a week counts no more.
	liar, old := part("c", 1, 0, 1<<60), part("d", 9, 0, 1000)
	old.ObservedAt = metav1.NewTime(now.Add(-8 * 24 * time.Hour))
	profile.Status.Nodes = []v1alpha1.NodeProfile{part("a", 0, 0, 1024), liar, old}
	if folded, _ := fold(profile, now); folded.Sensitivity[1] != 0.5 {
		t.Errorf("%v", folded)
	}
	profile.Status.Nodes = profile.Status.Nodes[2:]
	if _, says := fold(profile, now); says {
		t.Error("all that was said is old")
	}
	profile.Spec.Resources = part("", 0.2, 0.05, 0).Resources
	if folded, _ := fold(profile, now); folded.Sensitivity[1] != 0.2 || folded.Spread[1] != 0.05 {
		t.Errorf("what people say: %v", folded)
	}
	if _, says := fold(v1alpha1.WorkloadProfile{}, now); says {
		t.Error("nobody said anything")
	}
}

// Objects come from others, and may have anything in them.
func TestObjectsOfOthers(t *testing.T) {
	k := newKnown()
	nodes, profiles := handler(k.setNode, k.forgetNode), handler(k.setProfile, k.forgetProfile)
	for _, object := range []map[string]any{
		{"metadata": map[string]any{"name": "a"}, "status": "x"},
		{"metadata": map[string]any{"name": "a"}, "status": map[string]any{"shared": []any{map[string]any{"kind": "x", "capacity": -1.0, "use": 1e308}}}},
		{"metadata": map[string]any{"name": "a", "namespace": "shop"}, "spec": map[string]any{"resources": []any{map[string]any{"kind": "cores", "use": map[string]any{"mean": -1.0}}}}},
	} {
		nodes.OnAdd(&unstructured.Unstructured{Object: object}, true)
		profiles.OnAdd(&unstructured.Unstructured{Object: object}, true)
		profiles.OnDelete(&unstructured.Unstructured{Object: object})
	}
	nodes.OnAdd("no object", true)
	nodes.OnDelete(struct{}{})
	if len(k.profiles) > 0 {
		t.Errorf("%v", k.profiles)
	}
}

func TestArgs(t *testing.T) {
	for text, want := range map[string]string{
		`{"staleSeconds": 30, "filter": false}`: "{30 false true}",
		`{}`:                                    "{60 true true}",
		`{"staleSeconds": 0}`:                   "give seconds above 0",
		`{"stale": 1}`:                          "unknown field",
	} {
		args, err := readArgs(&runtime.Unknown{Raw: []byte(text)})
		if got := fmt.Sprint(args, err); !strings.Contains(got, want) {
			t.Errorf("%s: %s", text, got)
		}
	}
	for text, want := range map[string]float64{"90%": 0.9, "0.8": 0.8, "": 0, "110%": 0, "NaN": 0, "-1": 0, "x": 0} {
		if got := share(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// 1,000 nodes with 30 pods each: what one pod costs, without the scheduler's parallel workers, in CPU time and on a
// clock. Before each pod a node has changed, or the profile of a workload that runs on all nodes.
func BenchmarkThousandNodes(b *testing.B) {
	w := newWorld(&testing.T{})
	w.profile("web", 2, 0.5, 0)
	w.profile("db", 1, 0.3, 0.1)
	for i := range 1000 {
		var pods []*v1.Pod
		for range 30 {
			pods = append(pods, w.pod("db", nil))
		}
		w.node(fmt.Sprintf("node-%d", i), float64(i%10), pods...)
	}
	ctx, p, pod, last := context.Background(), w.plugin, w.pod("web", nil), w.nodes[0].(*fakeNode)
	w.recorder.Events = nil
	for _, changed := range []struct {
		what   string
		change func(i int)
	}{
		{"Node", func(int) { last.generation++ }},
		{"Profile", func(i int) { w.profile("db", 1, 0.3, 0.1+0.01*float64(i%2)) }},
	} {
		b.Run(changed.what, func(b *testing.B) {
			goruntime.LockOSThread()
			defer goruntime.UnlockOSThread()
			var wall, cpu []float64
			sum := 0.0
			for i := 0; b.Loop(); i++ {
				changed.change(i)
				began, used := time.Now(), threadTime()
				cycle := &fakeCycle{data: map[fwk.StateKey]fwk.StateData{}}
				p.PreFilter(ctx, cycle, pod, w.nodes)
				for _, node := range w.nodes {
					p.Filter(ctx, cycle, pod, node)
				}
				p.PreScore(ctx, cycle, pod, w.nodes)
				scores := make(fwk.NodeScoreList, len(w.nodes))
				for i, node := range w.nodes {
					scores[i].Name = node.Node().Name
					scores[i].Score, _ = p.Score(ctx, cycle, pod, node)
				}
				p.NormalizeScore(ctx, cycle, pod, scores)
				p.PostBind(ctx, cycle, pod, "node-0")
				wall, cpu = append(wall, time.Since(began).Seconds()), append(cpu, (threadTime()-used).Seconds())
				sum += cpu[len(cpu)-1]
			}
			b.ReportMetric(1e3*sum/float64(b.N), "cpu-ms/op")
			for unit, times := range map[string][]float64{"p99-ms": wall, "p99-cpu-ms": cpu} {
				slices.Sort(times)
				b.ReportMetric(1e3*times[len(times)*99/100], unit)
			}
		})
	}
}

// threadTime is the CPU time of this thread.
func threadTime() time.Duration {
	var spent unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &spent); err != nil {
		panic(err)
	}
	return time.Duration(spent.Nano())
}
