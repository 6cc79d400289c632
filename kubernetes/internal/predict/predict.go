// Package predict says how much speed pods on a node cost each other, from profiles.
//
// The model is linear, as those of ReSense and of Tang and others: a pod loses, for each kind of resource, its
// sensitivity times the pressure of others, and losses add up. Pressure is use over capacity; of a cache, how often its
// content is brought in anew in a millisecond. Losses are shares of speed: 0.1 is a tenth.
package predict

import (
	"math"

	"cotenant.dev/kubernetes/api/v1alpha1"
)

// kinds of resources; a Vector has a value of each.
const kinds = len(v1alpha1.Kinds)

// Vector has a value for each of v1alpha1.Kinds.
type Vector [kinds]float64

// dot is the sum of products.
func (v Vector) dot(w Vector) float64 {
	sum := 0.0
	for i := range v {
		sum += v[i] * w[i]
	}
	return sum
}

// Add is the sum.
func (v Vector) Add(w Vector) Vector {
	for i := range v {
		v[i] += w[i]
	}
	return v
}

// Scale is the multiple.
func (v Vector) Scale(by float64) Vector {
	for i := range v {
		v[i] *= by
	}
	return v
}

// Profile is what a pod of a workload uses, and how sensitive it is. What is unknown is 0: it costs nothing.
type Profile struct {
	// Use in the units of its kind; Sensitivity in loss per pressure; Spread is the standard deviation of that.
	Use, Sensitivity, Spread Vector
}

// Weights of classes: what is lost by a pod of class high counts as much as by four others.
const (
	High   = 4.0
	Normal = 1.0
	Low    = 0.25
)

// Weight of a class by its name.
func Weight(class string) float64 {
	switch class {
	case "high":
		return High
	case "low":
		return Low
	default:
		return Normal
	}
}

// Goal is of a pod that is to keep a share of its speed alone.
type Goal struct {
	Profile Profile
	// Share that is to be kept, 0 to 1.
	Share float64
	Name  string
}

// Node is a node with its pods.
type Node struct {
	// PerUse is the pressure that a unit of use makes; 0 where the capacity is unknown, and nothing is predicted for that
	// kind.
	PerUse Vector
	// Use of all that are there.
	Use Vector
	// Weighted is the sum of the sensitivities of those that are there, each by the weight of its class.
	Weighted Vector
	// Goals of those that are there.
	Goals []Goal
}

// Loss is what is lost if a pod comes: by itself, and in sum by those that are there, each by its weight.
type Loss struct {
	Own, Others float64
}

// Total is what is lost in all, the pod's own by its weight.
func (l Loss) Total(weight float64) float64 {
	return weight*l.Own + l.Others
}

// Miss is a goal that would be missed by more than what is measured is spread.
type Miss struct {
	// Name of whose goal it is; the pod's own has none.
	Name string
	// Kept is what of its speed it would keep, and Goal what it is to keep.
	Kept, Goal float64
}

// noticeable is the least loss for which a pod is kept away from one that misses its goal anyway.
const noticeable = 0.005

// pressure that a use makes on the node.
func (n *Node) pressure(use *Vector) (pressure Vector) {
	for i := range use {
		pressure[i] = use[i] * n.PerUse[i]
	}
	return pressure
}

// Lost says what is lost if a pod with that profile comes.
func (n *Node) Lost(pod *Profile) Loss {
	return Loss{
		Own:    math.Min(pod.Sensitivity.dot(n.pressure(&n.Use)), 1),
		Others: n.Weighted.dot(n.pressure(&pod.Use)),
	}
}

// Missed is a goal that would be missed if a pod with that profile comes, nil where none would; goal is what it is to
// keep itself, 0 where nothing is said.
func (n *Node) Missed(pod *Profile, goal float64) *Miss {
	there, comes := n.pressure(&n.Use), n.pressure(&pod.Use)
	if kept := 1 - n.Lost(pod).Own; goal > 0 && goal-kept > pod.Spread.dot(there) {
		return &Miss{Kept: kept, Goal: goal}
	}
	for i := range n.Goals {
		victim := &n.Goals[i]
		more := victim.Profile.Sensitivity.dot(comes)
		if more < noticeable {
			continue
		}
		// A pod puts no pressure on itself.
		use := n.Use.Add(victim.Profile.Use.Scale(-1)).positive().Add(pod.Use)
		others := n.pressure(&use)
		kept := 1 - math.Min(victim.Profile.Sensitivity.dot(others), 1)
		if victim.Share-kept > victim.Profile.Spread.dot(others) {
			return &Miss{Name: victim.Name, Kept: kept, Goal: victim.Share}
		}
	}
	return nil
}

// positive is the vector without what is below 0.
func (v Vector) positive() Vector {
	for i := range v {
		v[i] = math.Max(v[i], 0)
	}
	return v
}

// Score of a loss against the least of all nodes, 0 to 100: a point less for each hundredth of a pod of class normal.
func Score(loss, least float64) int64 {
	return int64(math.Round(100 * (1 - math.Min(math.Max(loss-least, 0), 1))))
}
