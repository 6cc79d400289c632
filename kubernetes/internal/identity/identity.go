// Package identity follows the containers of a node as the container runtime tells of them by NRI.
//
// Each answer comes from memory: a plugin that is late is disconnected, and containers then start unseen. It asks for
// no change to any container, neither in an answer nor by itself: on containerd before 2.4 that can deadlock.
package identity

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/containerd/nri/pkg/api"

	"cotenant.dev/kubernetes/internal/daemon"
	"cotenant.dev/kubernetes/internal/workload"
)

// Limits of what is kept. The daemon has the same.
const (
	maxContainers = 2048
	maxLabels     = 64
	maxKey        = 317
	maxValue      = 63
	maxAnnotation = 256
)

// Store knows the containers of this node. It is an NRI plugin.
type Store struct {
	mu         sync.Mutex
	pods       map[string]pod
	containers map[string]daemon.Container
	remarks    map[string]int
	synced     bool
	changed    chan struct{}
}

// pod is what containers inherit.
type pod struct {
	namespace, name, workload string
	labels                    map[string]string
	class, goal, metric       string
}

// New is empty.
func New() *Store {
	return &Store{
		pods:       map[string]pod{},
		containers: map[string]daemon.Container{},
		remarks:    map[string]int{},
		changed:    make(chan struct{}, 1),
	}
}

// Changed hears that the list is another one. Several changes may come as one.
func (s *Store) Changed() <-chan struct{} {
	return s.changed
}

// Containers is the list, in the order of control groups; false before the runtime has listed all once, which
// must not be taken for a node without containers.
func (s *Store) Containers() ([]daemon.Container, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Collect(maps.Values(s.containers))
	slices.SortFunc(list, func(a, b daemon.Container) int { return strings.Compare(a.CGroup, b.CGroup) })
	return list, s.synced
}

// TakeRemarks says what was left out since the last call, and how often.
func (s *Store) TakeRemarks() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	remarks := s.remarks
	s.remarks = map[string]int{}
	return remarks
}

// Synchronize is the first word of a runtime: its containers. What was known before came from a runtime that is gone.
func (s *Store) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.pods)
	clear(s.containers)
	for _, pod := range pods {
		s.addPod(pod)
	}
	for _, container := range containers {
		if container.GetState() != api.ContainerState_CONTAINER_STOPPED {
			s.add(container)
		}
	}
	s.synced = true
	s.tell()
	return nil, nil
}

// RunPodSandbox hears of a pod that begins.
func (s *Store) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addPod(pod)
	return nil
}

// RemovePodSandbox hears of a pod that is gone.
func (s *Store) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, pod.GetId())
	return nil
}

// StartContainer hears of a container whose process is about to run.
func (s *Store) StartContainer(_ context.Context, pod *api.PodSandbox, container *api.Container) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.pods[pod.GetId()]; !known {
		s.addPod(pod)
	}
	s.add(container)
	s.tell()
	return nil
}

// StopContainer hears of a container that has ended.
func (s *Store) StopContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) ([]*api.ContainerUpdate, error) {
	s.forget(container)
	return nil, nil
}

// RemoveContainer hears of a container that is gone, also of one that never ran.
func (s *Store) RemoveContainer(_ context.Context, _ *api.PodSandbox, container *api.Container) error {
	s.forget(container)
	return nil
}

func (s *Store) forget(container *api.Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.containers[container.GetId()]; known {
		delete(s.containers, container.GetId())
		s.tell()
	}
}

func (s *Store) tell() {
	select {
	case s.changed <- struct{}{}:
	default: // a change is waiting already
	}
}

func (s *Store) remark(what string) {
	if len(s.remarks) < 64 || s.remarks[what] > 0 {
		s.remarks[what]++
	}
}

func (s *Store) addPod(of *api.PodSandbox) {
	if !workload.IsName(of.GetNamespace()) || !workload.IsName(of.GetName()) {
		s.remark("a pod without a proper name")
		return
	}
	if len(s.pods) >= maxContainers {
		s.remark("more pods than are followed")
		return
	}
	annotations := of.GetAnnotations()
	annotation := func(key string) string {
		value := annotations[key]
		if len(value) > maxAnnotation || strings.ContainsFunc(value, unprintable) {
			s.remark("an annotation " + key + " that is too long or no text")
			return ""
		}
		return value
	}
	// A profile of each pod without an owner would be one that no other pod reads, and stay for ever.
	instance := ""
	if !workload.Alone(of.GetName(), of.GetLabels(), annotations) {
		instance = workload.Name(of.GetName(), of.GetLabels(), annotations)
	}
	s.pods[of.GetId()] = pod{
		namespace: of.GetNamespace(),
		name:      of.GetName(),
		workload:  instance,
		labels:    s.clean(of.GetLabels()),
		class:     annotation(workload.ClassAnnotation),
		goal:      annotation(workload.GoalAnnotation),
		metric:    annotation(workload.MetricAnnotation),
	}
}

func unprintable(r rune) bool {
	return !unicode.IsPrint(r)
}

// clean keeps the labels that are as Kubernetes has them, the first ones by name.
func (s *Store) clean(labels map[string]string) map[string]string {
	kept := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		value := labels[key]
		if len(kept) == maxLabels || key == "" || len(key) > maxKey || len(value) > maxValue || !isLabel(key) || !isLabel(value) {
			s.remark("a label that is too long or no text, or one too many")
			continue
		}
		kept[key] = value
	}
	return kept
}

func isLabel(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_./", r))
	})
}

func (s *Store) add(of *api.Container) {
	pod, known := s.pods[of.GetPodSandboxId()]
	switch {
	case !known:
		s.remark("a container of an unknown pod")
		return
	case !workload.IsName(of.GetName()):
		s.remark("a container without a proper name")
		return
	}
	if _, there := s.containers[of.GetId()]; !there && len(s.containers) >= maxContainers {
		s.remark("more containers than are followed")
		return
	}
	path, err := cgroup(of.GetLinux().GetCgroupsPath())
	if err != nil {
		s.remark("a container without a control group")
		return
	}
	s.containers[of.GetId()] = daemon.Container{
		CGroup:    path,
		Namespace: pod.namespace,
		Pod:       pod.name,
		Container: of.GetName(),
		Workload:  pod.workload,
		Labels:    pod.labels,
		Class:     pod.class,
		Goal:      pod.goal,
		Metric:    pod.metric,
	}
}
