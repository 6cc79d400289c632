// Package plugin is a plugin of kube-scheduler that prefers nodes on which little is lost, and keeps pods from nodes
// on which a goal would be missed.
//
// What it knows comes from NodeContentions and WorkloadProfiles. Where it knows nothing it says nothing: a pod without
// a profile is scheduled as if the plugin were not there, and a node without fresh data is as good as the average of
// the others.
package plugin

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/yaml"

	"cotenant.dev/kubernetes/api/v1alpha1"
	"cotenant.dev/kubernetes/internal/predict"
	"cotenant.dev/kubernetes/internal/workload"
)

// Name of the plugin in the scheduler's configuration.
const Name = "Cotenant"

// Args stand under pluginConfig in the scheduler's configuration.
type Args struct {
	// StaleSeconds is the age from which a node's data do not count.
	StaleSeconds float64 `json:"staleSeconds"`
	// Filter keeps pods from nodes on which a goal would be missed; without it such nodes only score less.
	Filter bool `json:"filter"`
	// Events says why a node was chosen, in an event of the pod.
	Events bool `json:"events"`
}

// defaultGoal is the daemon's for class high without a goal, or with one that it cannot read.
const defaultGoal = 0.9

// patience is how long the plugin waits at its start for the reports of nodes and workloads.
const patience = 5 * time.Second

// again is how often all objects are looked at anew: parts of profiles grow old without being written.
const again = time.Hour

func defaults() Args {
	return Args{StaleSeconds: 60, Filter: true, Events: true}
}

// Plugin judges nodes.
type Plugin struct {
	args     Args
	known    *known
	recorder events.EventRecorderLogger
	quiet    *quiet
	// few lets so many events a second pass: each is an object that the API server writes, and in a burst of pods they
	// would cost more than the choice itself.
	few      flowcontrol.RateLimiter
	parallel fwk.Parallelizer
}

const (
	eventsPerSecond = 5
	eventsAtOnce    = 50
)

var (
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.PreScorePlugin    = &Plugin{}
	_ fwk.ScorePlugin       = &Plugin{}
	_ fwk.ScoreExtensions   = &Plugin{}
	_ fwk.PostBindPlugin    = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.SignPlugin        = &Plugin{}
)

// New makes the plugin, and begins to follow what it needs.
func New(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	read, err := readArgs(args)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(rest.CopyConfig(handle.KubeConfig()))
	if err != nil {
		return nil, err
	}
	p := newPlugin(read, handle.EventRecorder(), handle.Parallelizer())
	informers := dynamicinformer.NewDynamicSharedInformerFactory(client, again)
	var heard []cache.InformerSynced
	for resource, handler := range map[schema.GroupVersionResource]cache.ResourceEventHandler{
		v1alpha1.NodeContentionResource:  handler(p.known.setNode, p.known.forgetNode),
		v1alpha1.WorkloadProfileResource: handler(p.known.setProfile, p.known.forgetProfile),
	} {
		registration, err := informers.ForResource(resource).Informer().AddEventHandler(handler)
		if err != nil {
			return nil, err
		}
		heard = append(heard, registration.HasSynced)
	}
	informers.Start(ctx.Done())
	// Pods that wait for a scheduler are not to be judged by one that has not heard of any node yet. If it hears
	// nothing it knows nothing, and says nothing. But kube-scheduler itself waits for the objects that EventsToRegister
	// names: as long as the API server has no NodeContentions, it schedules no pod at all.
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cache.WaitForCacheSync(wait.Done(), heard...)
	return p, nil
}

func newPlugin(args Args, recorder events.EventRecorderLogger, parallel fwk.Parallelizer) *Plugin {
	return &Plugin{args: args, known: newKnown(), recorder: recorder, parallel: parallel, quiet: newQuiet(), few: flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventsAtOnce)}
}

func readArgs(object runtime.Object) (Args, error) {
	args := defaults()
	unknown, is := object.(*runtime.Unknown)
	if object == nil || !is {
		return args, nil
	}
	if err := yaml.UnmarshalStrict(unknown.Raw, &args); err != nil {
		return args, fmt.Errorf("pluginConfig of %s: %w", Name, err)
	}
	if !(args.StaleSeconds > 0) {
		return args, fmt.Errorf("pluginConfig of %s: staleSeconds is %v; give seconds above 0", Name, args.StaleSeconds)
	}
	return args, nil
}

// Name of the plugin.
func (p *Plugin) Name() string {
	return Name
}

const stateKey fwk.StateKey = Name

// state of one pod while it is being scheduled.
type state struct {
	profile predict.Profile
	weight  float64
	goal    float64
	// since is from when on data are fresh.
	since time.Time
	// losses are what is lost on each of the nodes that are scored, and scores these nodes by name.
	losses []loss
	scores fwk.NodeScoreList
	// judged counts those of which there were fresh data.
	judged int
}

// loss on a node.
type loss struct {
	predict.Loss
	// known says whether there were fresh data.
	known bool
}

// Clone is the state itself: what is written meanwhile is of the same pod.
func (s *state) Clone() fwk.StateData {
	return s
}

func of(cycle fwk.CycleState) *state {
	data, err := cycle.Read(stateKey)
	if err != nil {
		return nil
	}
	s, _ := data.(*state)
	return s
}

// PreFilter looks up the pod. Without a profile the plugin has nothing to say.
func (p *Plugin) PreFilter(_ context.Context, cycle fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	profile, known := p.known.profile(pod)
	if !known {
		p.neutral(pod, "no profile of workload "+workload.Name(pod.Name, pod.Labels, pod.Annotations)+" is known yet")
		return nil, fwk.NewStatus(fwk.Skip)
	}
	class, own := pod.Annotations[workload.ClassAnnotation], 0.0
	if class == "high" { // the daemon keeps no other's goal either
		own = cmp.Or(share(pod.Annotations[workload.GoalAnnotation]), defaultGoal)
	}
	cycle.Write(stateKey, &state{
		profile: profile,
		weight:  predict.Weight(class),
		goal:    own,
		since:   p.known.since(p.args.StaleSeconds),
	})
	if !p.args.Filter || own == 0 && !p.known.hasGoals() {
		return nil, fwk.NewStatus(fwk.Skip) // no goal could be missed: the nodes need not be asked
	}
	return nil, nil
}

// PreFilterExtensions are none: Filter looks at the node's pods itself.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions {
	return nil
}

// Filter refuses a node on which a goal would be missed by more than what is measured is spread. To kube-scheduler that
// is not to be resolved: it would evict pods for a prediction.
func (p *Plugin) Filter(_ context.Context, cycle fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	s := of(cycle)
	if s == nil {
		return nil
	}
	view := p.known.view(node, s.since)
	// Most pods and nodes have no goal that could be missed.
	if view == nil || s.goal == 0 && len(view.Goals) == 0 {
		return nil
	}
	missed := view.Missed(&s.profile, s.goal)
	if missed == nil {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("%s would keep %.0f%% of its speed, and its goal is %.0f%%",
		cmp.Or(missed.Name, "the pod"), 100*missed.Kept, 100*missed.Goal))
}

// PreScore finds what is lost on each node. Scores are relative, and what is lost by a pod of class high is soon more
// on each node than a score can tell, so that Score itself has nothing to say.
func (p *Plugin) PreScore(ctx context.Context, cycle fwk.CycleState, _ *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	s := of(cycle)
	if s == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	s.losses, s.judged = make([]loss, len(nodes)), 0
	p.parallel.Until(ctx, len(nodes), func(i int) {
		if view := p.known.view(nodes[i], s.since); view != nil {
			s.losses[i] = loss{Loss: view.Lost(&s.profile), known: true} // Filter has looked at goals
		}
	}, Name)
	return nil
}

// Score is nothing yet: see NormalizeScore.
func (p *Plugin) Score(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) (int64, *fwk.Status) {
	return 0, nil
}

// ScoreExtensions is the plugin itself.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions {
	return p
}

// NormalizeScore is 100 where least is lost, and a point less for each hundredth of a pod of class normal that is lost
// more. Nodes of which nothing fresh is known get the average of the others.
func (p *Plugin) NormalizeScore(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	s := of(cycle)
	if s == nil || len(s.losses) != len(scores) {
		return nil
	}
	s.scores = scores // of the nodes of PreScore, in their order
	least := math.Inf(1)
	for i := range s.losses {
		if found := &s.losses[i]; found.known {
			least = math.Min(least, found.Total(s.weight))
			s.judged++
		}
	}
	const unknown = -1
	sum := int64(0)
	for i := range scores {
		if found := &s.losses[i]; found.known {
			scores[i].Score = predict.Score(found.Total(s.weight), least)
			sum += scores[i].Score
		} else {
			scores[i].Score = unknown
		}
	}
	average := sum / int64(max(s.judged, 1))
	for i := range scores {
		if scores[i].Score == unknown {
			scores[i].Score = average
		}
	}
	return nil
}

// PostBind says why.
func (p *Plugin) PostBind(_ context.Context, cycle fwk.CycleState, pod *v1.Pod, node string) {
	s := of(cycle)
	if s == nil || s.losses == nil {
		return // no profile, or no choice
	}
	if s.judged == 0 {
		p.neutral(pod, fmt.Sprintf("none of %d nodes has fresh data", len(s.losses)))
		return
	}
	p.event(pod, func() string { return s.says(node) })
}

// says is why a node was chosen.
func (s *state) says(node string) string {
	place := slices.IndexFunc(s.scores, func(of fwk.NodeScore) bool { return of.Name == node })
	stale := len(s.losses) - s.judged
	if place < 0 || !s.losses[place].known {
		return fmt.Sprintf("%s was chosen without fresh data of it; %d of %d nodes had none", node, stale, len(s.losses))
	}
	found := &s.losses[place]
	text := fmt.Sprintf("on %s the pod is predicted to lose %.1f%% of its speed; weighted by class it costs those there %.1f%%", node, 100*found.Own, 100*found.Others)
	if s.judged > 1 {
		worst, middle := s.spread()
		text += fmt.Sprintf(", and with its own loss %.1f%% in all; of %d nodes the median is %.1f%%, the worst %.1f%%", 100*found.Total(s.weight), s.judged, 100*middle, 100*worst)
	}
	if stale > 0 {
		text += fmt.Sprintf("; %d of %d nodes had no fresh data", stale, len(s.losses))
	}
	return text
}

// spread is what is lost on the worst node and on the one in the middle.
func (s *state) spread() (worst, middle float64) {
	var totals []float64
	for i := range s.losses {
		if found := &s.losses[i]; found.known {
			totals = append(totals, found.Total(s.weight))
		}
	}
	slices.Sort(totals)
	return totals[len(totals)-1], totals[len(totals)/2]
}

// neutral says why the plugin has no say, seldom for the same workload.
func (p *Plugin) neutral(pod *v1.Pod, why string) {
	of, now := types.NamespacedName{Namespace: pod.Namespace, Name: workload.Name(pod.Name, pod.Labels, pod.Annotations)}, time.Now()
	if !p.quiet.said(of, now) && p.event(pod, func() string { return "interference is not considered: " + why }) {
		p.quiet.say(of, now)
	}
}

// event says whether there is one: of too many there is none.
func (p *Plugin) event(pod *v1.Pod, note func() string) bool {
	if !p.args.Events || p.recorder == nil || !p.few.TryAccept() {
		return false
	}
	p.recorder.Eventf(pod, nil, v1.EventTypeNormal, "Interference", "Scheduling", "%s", note())
	return true
}

// EventsToRegister names what may let a pod in that was kept out: a pod that goes, a node that comes, other data. The
// first data of a node let no pod in: without them it is not refused.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	data := fwk.EventResource("nodecontentions.v1alpha1.cotenant.dev")
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}},
		{Event: fwk.ClusterEvent{Resource: data, ActionType: fwk.Update | fwk.Delete}, QueueingHintFn: p.retry},
	}, nil
}

// retry lets a pod that was kept out be tried again when other data of a node come. The scheduler has a watch of its
// own for that, which may be ahead of ours: the pod would be judged by the old data, and nothing would wake it again.
func (p *Plugin) retry(_ klog.Logger, _ *v1.Pod, before, after any) (fwk.QueueingHint, error) {
	if object, is := after.(*unstructured.Unstructured); is {
		p.known.ahead(object)
	} else if name, is := nameOf(before); is {
		p.known.forgetNode(name)
	}
	return fwk.Queue, nil
}

// SignPod says which pods are judged alike, so that the scheduler may judge one for all: those of which nothing is
// known. Each of the others changes what the next one finds.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if _, known := p.known.profile(pod); known {
		return nil, fwk.NewStatus(fwk.Unschedulable, "what its workload uses is known")
	}
	return nil, nil
}

// share is 0.9 of "90%" and of "0.9", and 0 of what is none.
func share(text string) float64 {
	digits, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	value, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if percent {
		value /= 100
	}
	if err != nil || math.IsNaN(value) || value < 0.01 || value > 0.999 {
		return 0
	}
	return value
}
