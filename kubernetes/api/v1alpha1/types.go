// Package v1alpha1 has the two objects through which nodes and the scheduler speak: cotenant.dev/v1alpha1.
package v1alpha1

import (
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group and version of the objects, and how they are asked for.
var (
	GroupVersion            = schema.GroupVersion{Group: "cotenant.dev", Version: "v1alpha1"}
	NodeContentionResource  = GroupVersion.WithResource("nodecontentions")
	WorkloadProfileResource = GroupVersion.WithResource("workloadprofiles")
)

// Limits of the lists; the schemas of the objects have the same. A kubelet runs 110 pods by default.
const (
	MaxShared       = 256
	MaxContainers   = 256
	MaxInterference = 20
	MaxNodes        = 16
)

const (
	// Oldest is the age from which what a node has seen of a workload counts no more.
	Oldest = 7 * 24 * time.Hour
	// MaxCount is the weight of a node's part at most: one that lies must not outweigh all others.
	MaxCount = 1024
)

// Kind says what is shared.
type Kind string

// What is shared, and in which units: capacity and use of cores in CPUs; of memory in bytes per second; of a cache its
// capacity in bytes, and what is brought in in bytes per second.
const (
	Cores  Kind = "cores"
	Memory Kind = "memory"
	Cache  Kind = "cache"
)

// Kinds in a fixed order.
var Kinds = [...]Kind{Cores, Memory, Cache}

// NodeContention says how much the containers of a node are in each other's way. It is called as its node is.
type NodeContention struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status NodeContentionStatus `json:"status"`
}

// NodeContentionStatus is what the node's agent measured.
type NodeContentionStatus struct {
	// ObservedAt is when, by the clock of the node.
	ObservedAt metav1.Time `json:"observedAt"`
	// Daemon is the version of the agent, Mode what it does: observe, advise or enforce.
	Daemon string `json:"daemon"`
	Mode   string `json:"mode"`
	// Summary is for people.
	Summary Summary `json:"summary"`
	Shared  []Share `json:"shared"`
	// Containers are those of class high or low, at most MaxContainers, those of class high first.
	Containers []Container `json:"containers"`
	// Omitted counts those that are too many.
	Omitted int64 `json:"omitted"`
	// Interference has the greatest losses that are beyond doubt.
	Interference []Pair `json:"interference"`
}

// Summary has the pressure by kind as people read it, and the worst pair.
type Summary struct {
	Cores  string `json:"cores"`
	Memory string `json:"memory"`
	Cache  string `json:"cache"`
	Worst  string `json:"worst"`
}

// Share is something that containers share.
type Share struct {
	Kind     Kind    `json:"kind"`
	Name     string  `json:"name"`
	Capacity float64 `json:"capacity"`
	// Use is absent where the node cannot count it.
	Use *float64 `json:"use,omitempty"`
}

// Load adds up what is known of a kind: how much there is, and how much of it is used; false where nothing is.
func Load(shared []Share, kind Kind) (capacity, use float64, known bool) {
	for _, share := range shared {
		if share.Kind == kind && share.Use != nil && share.Capacity > 0 {
			capacity, use, known = capacity+share.Capacity, use+*share.Use, true
		}
	}
	return capacity, use, known
}

// Pressure that a use makes, by kind as ProfileResource says; 0 where the capacity is unknown.
func Pressure(kind Kind, use, capacity float64) float64 {
	switch {
	case capacity <= 0:
		return 0
	case kind == Cache:
		return use / capacity / 1e3 // a second has as many milliseconds
	default:
		return use / capacity
	}
}

// Container is one with a goal, or one that gives way.
type Container struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	Workload  string `json:"workload,omitempty"`
	Class     string `json:"class"`
	// Goal is the share of its speed alone that it is to keep, Kept what it kept in the last minute.
	Goal *float64 `json:"goal,omitempty"`
	Kept *float64 `json:"kept,omitempty"`
}

// Pair says that a victim loses a share of its speed while an aggressor runs: containers by namespace/pod/container.
type Pair struct {
	Victim    string  `json:"victim"`
	Aggressor string  `json:"aggressor"`
	Loss      float64 `json:"loss"`
	Low       float64 `json:"low"`
	High      float64 `json:"high"`
	Events    int64   `json:"events"`
}

// WorkloadProfile says what a workload uses and how sensitive it is. It is called as the workload is: by the
// annotation cotenant.dev/profile, or by the controller that owns its pods.
type WorkloadProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what people have measured; it counts for more than Status.
	Spec WorkloadProfileSpec `json:"spec,omitempty"`
	// Status is what the agents of nodes have seen.
	Status WorkloadProfileStatus `json:"status,omitempty"`
}

// WorkloadProfileSpec is a profile by hand, such as from characterization.
type WorkloadProfileSpec struct {
	Resources []ProfileResource `json:"resources,omitempty"`
}

// WorkloadProfileStatus has a part of each node, at most MaxNodes.
type WorkloadProfileStatus struct {
	// Summary is for people.
	Summary ProfileSummary `json:"summary,omitempty"`
	Nodes   []NodeProfile  `json:"nodes,omitempty"`
}

// ProfileSummary has how many nodes tell of a workload, what a pod of it uses, and to what it is sensitive.
type ProfileSummary struct {
	Nodes     int64  `json:"nodes,omitempty"`
	Cores     string `json:"cores,omitempty"`
	Memory    string `json:"memory,omitempty"`
	Cache     string `json:"cache,omitempty"`
	Sensitive string `json:"sensitive,omitempty"`
}

// NodeProfile is what one node has seen of a workload.
type NodeProfile struct {
	Node       string            `json:"node"`
	ObservedAt metav1.Time       `json:"observedAt"`
	Resources  []ProfileResource `json:"resources"`
}

// ProfileResource has both sides of what a pod of a workload does with a kind of resource.
type ProfileResource struct {
	Kind Kind `json:"kind"`
	// Use of one pod, in the units of Kind.
	Use *Measured `json:"use,omitempty"`
	// Sensitivity is the share of its speed that it loses for each unit of pressure by others. Pressure is use over
	// capacity; of a cache, how often its content is brought in anew in a millisecond.
	Sensitivity *Measured `json:"sensitivity,omitempty"`
}

// Measured is a mean with its standard deviation, from so many samples.
type Measured struct {
	Mean   float64 `json:"mean"`
	Spread float64 `json:"spread"`
	Count  int64   `json:"count"`
}

// Pool makes one of what nodes have measured since then, by how often they did; nil where none has.
func Pool(parts []NodeProfile, since time.Time, kind Kind, value func(ProfileResource) *Measured) *Measured {
	count, mean, square := 0.0, 0.0, 0.0
	for _, part := range parts {
		if part.ObservedAt.Time.Before(since) {
			continue
		}
		for _, resource := range part.Resources {
			if of := value(resource); resource.Kind == kind && of != nil && of.Count > 0 {
				n := float64(min(of.Count, MaxCount))
				count, mean, square = count+n, mean+n*of.Mean, square+n*(of.Spread*of.Spread+of.Mean*of.Mean)
			}
		}
	}
	if count == 0 {
		return nil
	}
	mean /= count
	return &Measured{Mean: mean, Spread: math.Sqrt(math.Max(square/count-mean*mean, 0)), Count: int64(count)}
}
