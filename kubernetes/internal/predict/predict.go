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

// Node is a node with who is there.
type Node struct {
	// Capacity of what is shared; 0 where it is unknown, and nothing is predicted for that kind.
	Capacity Vector
	// Use of all that are there.
	Use Vector
	// Weighted is the sum of the sensitivities of those that are there, each by the weight of its class.
	Weighted Vector
	// Goals of those that are there.
	Goals []Goal
}

// Prediction is what happens if a pod comes.
type Prediction struct {
	// Own is the pod's loss, Others the sum of what those lose that are there, each by its weight.
	Own, Others float64
	// Missed names whose goal would be missed by more than the spread: the pod's own by "", nobody's by nil.
	Missed *string
	// Kept is what of its speed that one would keep, and Goal what it is to keep.
	Kept, Goal float64
}

// Loss is what is lost in all, the pod's own by its weight.
func (p Prediction) Loss(weight float64) float64 {
	return weight*p.Own + p.Others
}

// noticeable is the least loss for which a pod is kept away from one that misses its goal anyway.
const noticeable = 0.005

// pressure that a use makes on the node.
func (n *Node) pressure(use Vector) Vector {
	var pressure Vector
	for i := range use {
		pressure[i] = v1alpha1.Pressure(v1alpha1.Kinds[i], use[i], n.Capacity[i])
	}
	return pressure
}

// Lost says what is lost if a pod with that profile comes, and nothing of goals.
func (n *Node) Lost(pod Profile) Prediction {
	own := math.Min(pod.Sensitivity.dot(n.pressure(n.Use)), 1)
	return Prediction{Own: own, Others: n.Weighted.dot(n.pressure(pod.Use))}
}

// Predict says what happens if a pod with that profile comes; goal is what it is to keep, 0 where nothing is said.
func (n *Node) Predict(pod Profile, goal float64) Prediction {
	p, there, comes := n.Lost(pod), n.pressure(n.Use), n.pressure(pod.Use)
	if goal > 0 && goal-(1-p.Own) > pod.Spread.dot(there) {
		own := ""
		p.Missed, p.Kept, p.Goal = &own, 1-p.Own, goal
		return p
	}
	for i := range n.Goals {
		victim := &n.Goals[i]
		more := victim.Profile.Sensitivity.dot(comes)
		if more < noticeable {
			continue
		}
		// Nobody presses on itself.
		others := n.pressure(n.Use.Add(victim.Profile.Use.Scale(-1)).positive().Add(pod.Use))
		kept := 1 - math.Min(victim.Profile.Sensitivity.dot(others), 1)
		if victim.Share-kept > victim.Profile.Spread.dot(others) {
			p.Missed, p.Kept, p.Goal = &victim.Name, kept, victim.Share
			return p
		}
	}
	return p
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
