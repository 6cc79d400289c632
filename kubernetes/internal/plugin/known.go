package plugin

import (
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"cotenant.dev/kubernetes/api/v1alpha1"
	"cotenant.dev/kubernetes/internal/predict"
	"cotenant.dev/kubernetes/internal/workload"
)

// known is what nodes and workloads have reported. Nodes are looked up without a lock: many threads do at once, and for each
// pod all of them.
type known struct {
	// nodes by their names. Where one comes or goes the map is another one. It changes, and goals with it, where mu is
	// held.
	nodes atomic.Pointer[map[string]*nodeData]
	// goals counts nodes on which a goal is in force.
	goals atomic.Int64
	// epoch counts changes of profiles.
	epoch    atomic.Int64
	mu       sync.RWMutex
	profiles map[types.NamespacedName]predict.Profile
	now      func() time.Time
}

// nodeData is of one node.
type nodeData struct {
	told atomic.Pointer[told]
	view atomic.Pointer[view]
}

// told is what a node reported last.
type told struct {
	status v1alpha1.NodeContentionStatus
	// version is that of the object.
	version string
	// seen is when its last measurement was heard of first, by our clock: clocks of nodes may be wrong.
	seen time.Time
}

// view is what was made of it for that generation of the node and that epoch of profiles.
type view struct {
	predict.Node
	of                *told
	seen              time.Time
	generation, epoch int64
}

func newKnown() *known {
	k := &known{profiles: map[types.NamespacedName]predict.Profile{}, now: time.Now}
	k.nodes.Store(&map[string]*nodeData{})
	return k
}

// firstStale is the age by the node's clock from which an object that is heard of for the first time is no news.
const firstStale = time.Minute

// handler hands on what an informer says of objects of one kind.
func handler[T any](set func(T), forget func(types.NamespacedName)) cache.ResourceEventHandler {
	take := func(object any) {
		var of T
		if decode(object, &of) {
			set(of)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, object any) { take(object) },
		DeleteFunc: func(object any) {
			if name, is := nameOf(object); is {
				forget(name)
			}
		},
	}
}

func (k *known) setNode(node v1alpha1.NodeContention) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, old := k.now(), k.told(node.Name)
	// Two watches tell of nodes: what the slower one says may be past. Versions that cannot be compared have no order.
	if old != nil {
		if order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, old.version); err == nil && order < 0 {
			return
		}
	}
	data := &told{status: node.Status, version: node.ResourceVersion, seen: now}
	switch {
	case old != nil && old.status.ObservedAt.Equal(&node.Status.ObservedAt):
		data.seen = old.seen
	case old == nil && now.Sub(node.Status.ObservedAt.Time) > firstStale:
		data.seen = time.Time{}
	}
	k.goals.Add(data.goals() - old.goals())
	nodes := *k.nodes.Load()
	if of := nodes[node.Name]; of != nil {
		of.told.Store(data)
		return
	}
	of := &nodeData{}
	of.told.Store(data) // whoever finds it finds that
	nodes = maps.Clone(nodes)
	nodes[node.Name] = of
	k.nodes.Store(&nodes)
}

// told is nil where a node has reported nothing.
func (k *known) told(name string) *told {
	if node := (*k.nodes.Load())[name]; node != nil {
		return node.told.Load()
	}
	return nil
}

// ahead takes in a node's object of which the scheduler has heard and our own informer may not have yet. It is asked
// once for each pod that waits, mostly of the same object.
func (k *known) ahead(object *unstructured.Unstructured) {
	data := k.told(object.GetName())
	same := data != nil && data.version == object.GetResourceVersion()
	var node v1alpha1.NodeContention
	if !same && decode(object, &node) {
		k.setNode(node)
	}
}

func (k *known) forgetNode(name types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.goals.Add(-k.told(name.Name).goals())
	nodes := maps.Clone(*k.nodes.Load())
	delete(nodes, name.Name)
	k.nodes.Store(&nodes)
}

// goals is 1 where a goal is in force.
func (d *told) goals() int64 {
	if d != nil && slices.ContainsFunc(d.status.Containers, func(of v1alpha1.Container) bool { return goal(of) > 0 }) {
		return 1
	}
	return 0
}

// goal that is in force for a container; 0 where none is.
func goal(of v1alpha1.Container) float64 {
	switch {
	case of.Class != "high":
		return 0
	case of.Goal == nil:
		return defaultGoal
	default:
		return *of.Goal
	}
}

// hasGoals says whether any pod on any node could miss one.
func (k *known) hasGoals() bool {
	return k.goals.Load() > 0
}

func (k *known) setProfile(profile v1alpha1.WorkloadProfile) {
	name := types.NamespacedName{Namespace: profile.Namespace, Name: profile.Name}
	read, says := fold(profile, k.now())
	k.mu.Lock()
	defer k.mu.Unlock()
	if old, there := k.profiles[name]; there == says && old == read {
		return
	}
	if says {
		k.profiles[name] = read
	} else {
		delete(k.profiles, name)
	}
	k.epoch.Add(1)
}

func (k *known) forgetProfile(name types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.profiles, name)
	k.epoch.Add(1)
}

// decode reads an object of an informer.
func decode(object any, into any) bool {
	of, is := object.(*unstructured.Unstructured)
	return is && runtime.DefaultUnstructuredConverter.FromUnstructured(of.Object, into) == nil
}

func nameOf(object any) (types.NamespacedName, bool) {
	if gone, is := object.(cache.DeletedFinalStateUnknown); is {
		object = gone.Obj
	}
	of, is := object.(*unstructured.Unstructured)
	if !is {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: of.GetNamespace(), Name: of.GetName()}, true
}

// profile is that of a pod's workload; false where nothing is known.
func (k *known) profile(pod *v1.Pod) (predict.Profile, bool) {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: workload.Name(pod.Name, pod.Labels, pod.Annotations)}
	k.mu.RLock()
	defer k.mu.RUnlock()
	profile, known := k.profiles[name]
	return profile, known
}

// since is from when on data must have been heard of to be fresh. A Duration holds no more than 292 years.
func (k *known) since(staleSeconds float64) time.Time {
	const longestSeconds = 1e9
	return k.now().Add(-time.Duration(math.Min(staleSeconds, longestSeconds) * float64(time.Second)))
}

// view is the node as it is judged, with the pods that the scheduler knows to be there; nil without fresh data.
func (k *known) view(info fwk.NodeInfo, since time.Time) *predict.Node {
	node := (*k.nodes.Load())[info.Node().Name]
	if node == nil {
		return nil
	}
	data, is := node.told.Load(), node.view.Load()
	// Preemption asks about copies of nodes without some pods; each has a generation of its own.
	if is == nil || is.of != data || is.generation != info.GetGeneration() || is.epoch != k.epoch.Load() {
		is = k.see(data, info)
		node.view.Store(is)
	}
	if is.seen.Before(since) {
		return nil
	}
	return &is.Node
}

// see puts together what was measured on a node and its pods.
func (k *known) see(data *told, info fwk.NodeInfo) *view {
	k.mu.RLock()
	defer k.mu.RUnlock()
	node := &view{of: data, seen: data.seen, generation: info.GetGeneration(), epoch: k.epoch.Load()}
	for i, kind := range v1alpha1.Kinds {
		if capacity, use, known := v1alpha1.Load(data.status.Shared, kind); known {
			node.PerUse[i], node.Use[i] = v1alpha1.Pressure(kind, 1, finite(capacity)), finite(use)
		}
	}
	type terms struct {
		class string
		goal  float64
	}
	// Class and goal as they are in force there; what pods say of themselves may not be allowed.
	forced := map[types.NamespacedName]terms{}
	for _, container := range data.status.Containers {
		name := types.NamespacedName{Namespace: container.Namespace, Name: container.Pod}
		t := terms{class: container.Class, goal: goal(container)}
		if old, there := forced[name]; !there || t.goal > old.goal {
			forced[name] = t
		}
	}
	for _, there := range info.GetPods() {
		pod := there.GetPod()
		profile, known := k.profiles[types.NamespacedName{Namespace: pod.Namespace, Name: workload.Name(pod.Name, pod.Labels, pod.Annotations)}]
		if !known {
			continue
		}
		if !measured(pod, data.status.ObservedAt.Time) {
			node.Use = node.Use.Add(profile.Use)
		}
		terms := forced[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]
		node.Weighted = node.Weighted.Add(profile.Sensitivity.Scale(predict.Weight(terms.class)))
		if terms.goal > 0 {
			node.Goals = append(node.Goals, predict.Goal{Profile: profile, Share: terms.goal, Name: pod.Namespace + "/" + pod.Name})
		}
	}
	return node
}

// measured says whether what a pod uses is part of what was measured then. The kubelet knows of a pod before its images
// are there and its last container runs.
func measured(pod *v1.Pod, at time.Time) bool {
	if pod.Status.Phase != v1.PodRunning || pod.Status.StartTime == nil {
		return false
	}
	started := pod.Status.StartTime.Time
	for _, of := range pod.Status.ContainerStatuses {
		if running := of.State.Running; running != nil && running.StartedAt.After(started) {
			started = running.StartedAt.Time
		}
	}
	return started.Before(at)
}

// fold makes one profile of what people and nodes say: of each value people's, else the mean of the nodes' by how often
// they saw it.
func fold(profile v1alpha1.WorkloadProfile, now time.Time) (folded predict.Profile, says bool) {
	pool := func(kind v1alpha1.Kind, value func(v1alpha1.ProfileResource) *v1alpha1.Measured) *v1alpha1.Measured {
		for _, resource := range profile.Spec.Resources {
			if of := value(resource); resource.Kind == kind && of != nil {
				return of
			}
		}
		return v1alpha1.Pool(profile.Status.Nodes, now.Add(-v1alpha1.Oldest), kind, value)
	}
	for i, kind := range v1alpha1.Kinds {
		use := pool(kind, func(r v1alpha1.ProfileResource) *v1alpha1.Measured { return r.Use })
		sensitivity := pool(kind, func(r v1alpha1.ProfileResource) *v1alpha1.Measured { return r.Sensitivity })
		if use != nil {
			folded.Use[i], says = finite(use.Mean), true
		}
		if sensitivity != nil {
			folded.Sensitivity[i], folded.Spread[i], says = finite(sensitivity.Mean), finite(sensitivity.Spread), true
		}
	}
	return folded, says
}

// finite is the value where it can be one: objects may be written by others.
func finite(value float64) float64 {
	if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return 0
	}
	return value
}

// quiet remembers the pods about which something was said lately.
type quiet struct {
	mu   sync.Mutex
	last map[types.NamespacedName]time.Time
}

const (
	quietFor   = 10 * time.Minute
	remembered = 4096
)

func newQuiet() *quiet {
	return &quiet{last: map[types.NamespacedName]time.Time{}}
}

func (q *quiet) said(of types.NamespacedName, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	last, said := q.last[of]
	return said && now.Sub(last) < quietFor
}

func (q *quiet) say(of types.NamespacedName, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.last) >= remembered {
		clear(q.last)
	}
	q.last[of] = now
}
