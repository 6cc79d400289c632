// Package publish tells the API server how a node stands: one NodeContention of the node, and its part in the
// WorkloadProfiles of what runs there.
package publish

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"cotenant.dev/kubernetes/api/v1alpha1"
	"cotenant.dev/kubernetes/internal/daemon"
	"cotenant.dev/kubernetes/internal/workload"
)

const (
	// alive is after how long an object is written though nothing has changed: the scheduler takes one of a minute
	// for stale.
	alive = 30 * time.Second
	// profileEvery is how often profiles are written, samples how many there are to be by then, and atOnce how many
	// are written at once.
	profileEvery = 10 * time.Minute
	samples      = 12
	atOnce       = 20
	// patience is the time for all profiles together. The node's own state waits meanwhile, and is stale after a minute.
	patience = 15 * time.Second
	// staleS is the age of the daemon's last sample from which nothing is published, seconds.
	staleS = 60
)

var nodes = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}

// Publisher is of one node.
type Publisher struct {
	client  dynamic.Interface
	node    string
	now     func() time.Time
	book    book
	last    *v1alpha1.NodeContentionStatus
	written time.Time
	// profiled is when profiles were written last, parts what was.
	profiled time.Time
	parts    map[key]v1alpha1.NodeProfile
	patience time.Duration
}

// New publishes for the node of that name.
func New(client dynamic.Interface, node string) *Publisher {
	return NewAt(client, node, time.Now)
}

// NewAt goes by another clock.
func NewAt(client dynamic.Interface, node string, now func() time.Time) *Publisher {
	return &Publisher{client: client, node: node, now: now, book: book{}, parts: map[key]v1alpha1.NodeProfile{}, patience: patience}
}

// Publish takes in how the node stands, and writes what is worth it.
func (p *Publisher) Publish(ctx context.Context, node daemon.Node) error {
	if node.AgeS > staleS {
		return fmt.Errorf("the daemon's last sample is %.0f s old", node.AgeS)
	}
	now := p.now()
	status := status(node, now)
	p.book.add(node, now)
	if p.last == nil || now.Sub(p.written) >= alive || changed(*p.last, status) {
		if err := p.contention(ctx, status); err != nil {
			return err
		}
		p.last, p.written = &status, now
	}
	if p.profiled.IsZero() {
		p.profiled = now // what is there has just begun to be seen
	}
	if now.Sub(p.profiled) >= profileEvery {
		p.profiled = now
		return p.profiles(ctx)
	}
	return nil
}

// status is what is published of a node.
func status(node daemon.Node, now time.Time) v1alpha1.NodeContentionStatus {
	status := v1alpha1.NodeContentionStatus{
		ObservedAt:   metav1.NewTime(now.Add(-time.Duration(node.AgeS * float64(time.Second)))),
		Daemon:       bounded(node.Version),
		Mode:         bounded(node.Mode),
		Shared:       []v1alpha1.Share{},
		Containers:   []v1alpha1.Container{},
		Interference: []v1alpha1.Pair{},
	}
	for _, shared := range node.Shared[:min(len(node.Shared), v1alpha1.MaxShared)] {
		kind := v1alpha1.Kind(shared.What)
		if !slices.Contains(v1alpha1.Kinds[:], kind) {
			continue
		}
		share := v1alpha1.Share{Kind: kind, Name: bounded(shared.Name), Capacity: short(shared.Capacity)}
		if shared.Use != nil {
			use := short(*shared.Use)
			share.Use = &use
		}
		status.Shared = append(status.Shared, share)
	}
	for _, guest := range node.Containers {
		if guest.Class != "high" && guest.Class != "low" {
			continue
		}
		if !workload.IsName(guest.Namespace) || !workload.IsName(guest.Pod) || !workload.IsName(guest.Container) {
			continue
		}
		of := v1alpha1.Container{Namespace: guest.Namespace, Pod: guest.Pod, Container: guest.Container, Workload: guest.Workload, Class: guest.Class}
		of.Goal = guest.Goal
		if guest.Kept != nil {
			kept := short(*guest.Kept)
			of.Kept = &kept
		}
		status.Containers = append(status.Containers, of)
	}
	// Goals are what the scheduler has to know. "high" comes before "low".
	slices.SortStableFunc(status.Containers, func(a, b v1alpha1.Container) int { return cmp.Compare(a.Class, b.Class) })
	kept := min(len(status.Containers), v1alpha1.MaxContainers)
	status.Omitted = int64(len(status.Containers) - kept)
	status.Containers = status.Containers[:kept]
	for _, pair := range node.Interference[:min(len(node.Interference), v1alpha1.MaxInterference)] {
		status.Interference = append(status.Interference, v1alpha1.Pair{
			Victim: bounded(pair.Victim), Aggressor: bounded(pair.Aggressor),
			Loss: short(pair.Loss), Low: short(pair.Low), High: short(pair.High), Events: pair.Events,
		})
	}
	status.Summary = summary(status)
	return status
}

// bounded is text of the daemon as the schema takes it.
func bounded(text string) string {
	if runes := []rune(text); len(runes) > 255 {
		return string(runes[:254]) + "…"
	}
	return text
}

// summary is for people.
func summary(status v1alpha1.NodeContentionStatus) v1alpha1.Summary {
	of := func(kind v1alpha1.Kind, text func(load float64) string) string {
		capacity, use, known := v1alpha1.Load(status.Shared, kind)
		if !known {
			return "?"
		}
		return text(use / capacity)
	}
	percent := func(load float64) string { return fmt.Sprintf("%.0f%%", 100*load) }
	s := v1alpha1.Summary{
		Cores:  of(v1alpha1.Cores, percent),
		Memory: of(v1alpha1.Memory, percent),
		Cache:  of(v1alpha1.Cache, func(load float64) string { return fmt.Sprintf("%.3g/s", load) }),
	}
	if len(status.Interference) > 0 {
		worst := status.Interference[0]
		s.Worst = bounded(fmt.Sprintf("%s loses %.0f%% to %s", worst.Victim, 100*worst.Loss, worst.Aggressor))
	}
	return s
}

// changed says whether the scheduler would judge otherwise, or people would read something else: a load moved by 5 %,
// others are there, have another goal, or hurt each other.
func changed(old, new v1alpha1.NodeContentionStatus) bool {
	goal := func(of v1alpha1.Container) float64 {
		if of.Goal == nil {
			return 0
		}
		return *of.Goal
	}
	// Without their order: losses that are alike take turns in it.
	pairs := func(of []v1alpha1.Pair) (names []string) {
		for _, pair := range of {
			names = append(names, pair.Victim+" "+pair.Aggressor)
		}
		slices.Sort(names)
		return names
	}
	if len(old.Shared) != len(new.Shared) || old.Mode != new.Mode ||
		!slices.Equal(pairs(old.Interference), pairs(new.Interference)) ||
		!slices.EqualFunc(old.Containers, new.Containers, func(a, b v1alpha1.Container) bool {
			return a.Namespace == b.Namespace && a.Pod == b.Pod && a.Container == b.Container && a.Class == b.Class && goal(a) == goal(b)
		}) {
		return true
	}
	for _, kind := range v1alpha1.Kinds {
		capacity, before, known := v1alpha1.Load(old.Shared, kind)
		_, after, still := v1alpha1.Load(new.Shared, kind)
		if known != still || math.Abs(v1alpha1.Pressure(kind, after-before, capacity)) > 0.05 {
			return true
		}
	}
	return false
}

// contention writes the node's object, and makes it where there is none.
func (p *Publisher) contention(ctx context.Context, status v1alpha1.NodeContentionStatus) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	objects := p.client.Resource(v1alpha1.NodeContentionResource)
	_, err = objects.Patch(ctx, p.node, types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	// It goes with its node.
	node, err := p.client.Resource(nodes).Get(ctx, p.node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: p.node, UID: node.GetUID()}
	object, err := toUnstructured(&v1alpha1.NodeContention{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeContention"},
		ObjectMeta: metav1.ObjectMeta{Name: p.node, OwnerReferences: []metav1.OwnerReference{owner}},
		Status:     status,
	})
	if err != nil {
		return err
	}
	_, err = objects.Create(ctx, object, metav1.CreateOptions{})
	return err
}

// profiles writes this node's part of the profiles that have changed.
func (p *Publisher) profiles(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	written := 0
	var failed error
	for of, seen := range p.book {
		if seen.last.Before(p.now().Add(-profileEvery)) {
			continue // it does not run here any more
		}
		enough := false
		for _, use := range seen.use {
			enough = enough || use.count >= samples
		}
		part := seen.part(p.node)
		old, known := p.parts[of]
		if !enough || known && !differ(old, part) {
			continue
		}
		if written++; written > atOnce || ctx.Err() != nil {
			break // the others have their turn the next time: maps are walked at random
		}
		switch part, err := p.profile(ctx, of, seen); {
		case err == nil:
			p.parts[of] = part
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
			// Another node was faster; this part is written the next time.
		default:
			// One that is not taken must not keep the others from being written.
			failed = errors.Join(failed, fmt.Errorf("the profile of %s/%s: %w", of.namespace, of.name, err))
		}
	}
	for of := range p.parts {
		if p.book[of] == nil {
			delete(p.parts, of)
		}
	}
	return failed
}

// profile writes this node's part of one profile, and says which that is.
func (p *Publisher) profile(ctx context.Context, of key, seen *seen) (part v1alpha1.NodeProfile, err error) {
	objects := p.client.Resource(v1alpha1.WorkloadProfileResource).Namespace(of.namespace)
	object, err := objects.Get(ctx, of.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		empty, wrong := toUnstructured(&v1alpha1.WorkloadProfile{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WorkloadProfile"},
			ObjectMeta: metav1.ObjectMeta{Name: of.name, Namespace: of.namespace},
		})
		if wrong != nil {
			return part, wrong
		}
		object, err = objects.Create(ctx, empty, metav1.CreateOptions{})
	}
	if err != nil {
		return part, err
	}
	var profile v1alpha1.WorkloadProfile
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &profile); err != nil {
		return part, err
	}
	seen.recall(profile.Status.Nodes, p.node)
	part = seen.part(p.node)
	profile.Status.Nodes = merge(profile.Status.Nodes, part)
	profile.Status.Summary = summarize(profile.Status.Nodes)
	changed, err := toUnstructured(&profile)
	if err != nil {
		return part, err
	}
	_, err = objects.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	return part, err
}

func toUnstructured(object any) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	return &unstructured.Unstructured{Object: fields}, err
}
