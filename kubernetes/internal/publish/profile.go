package publish

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cotenant.dev/kubernetes/api/v1alpha1"
	"cotenant.dev/kubernetes/internal/daemon"
)

const (
	// memory is after how many samples half of what is older is forgotten.
	memory = 512
	// workloads that are remembered.
	workloads = 512
)

// key names a workload.
type key struct{ namespace, name string }

// moments of a series of samples: how many, their mean, and the sum of squared distances from it (Welford).
type moments struct {
	count, mean, squares float64
}

func (m *moments) add(value float64) {
	if m.count >= memory {
		m.count, m.squares = m.count/2, m.squares/2
	}
	m.count++
	distance := value - m.mean
	m.mean += distance / m.count
	m.squares += distance * (value - m.mean)
}

// join takes in what was measured before.
func (m *moments) join(before v1alpha1.Measured) {
	count := math.Min(float64(before.Count), memory)
	distance, all := before.Mean-m.mean, m.count+count
	m.squares += before.Spread*before.Spread*(count-1) + distance*distance*m.count*count/all
	m.mean += distance * count / all
	m.count = all
}

func (m *moments) measured() *v1alpha1.Measured {
	if m.count == 0 {
		return nil
	}
	spread := 0.0
	if m.count > 1 {
		spread = math.Sqrt(m.squares / (m.count - 1))
	}
	return &v1alpha1.Measured{Mean: short(m.mean), Spread: short(spread), Count: int64(m.count)}
}

// short is the value with three digits: objects that say the same are the same.
func short(value float64) float64 {
	if value == 0 || math.IsNaN(value) || math.IsInf(value, 0) {
		return 0
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(value))))
	if digits < 0 {
		unit := math.Pow10(-digits)
		return math.Round(value/unit) * unit
	}
	unit := math.Pow10(min(digits, 300))
	return math.Round(value*unit) / unit
}

// seen is what this node has seen of a workload.
type seen struct {
	use         map[v1alpha1.Kind]*moments
	sensitivity map[v1alpha1.Kind]lost
	last        time.Time
	// recalled says that what this node has said of it before is taken in.
	recalled bool
}

// lost is a sensitivity, and when it was seen last: it stays when the aggressor goes.
type lost struct {
	v1alpha1.Measured
	at time.Time
}

// book is what this node has seen of all of them.
type book map[key]*seen

// add takes in how the node stands.
func (b book) add(node daemon.Node, now time.Time) {
	capacity := map[v1alpha1.Kind]float64{}
	for _, shared := range node.Shared {
		// Use and capacity are to be of the same: what the node cannot count is in no container's use.
		if shared.Use != nil {
			capacity[v1alpha1.Kind(shared.What)] += shared.Capacity
		}
	}
	guests := map[string]daemon.Guest{}
	// A pod uses what its containers use together.
	type pod struct {
		key
		pod string
	}
	pods := map[pod]map[v1alpha1.Kind]float64{}
	for _, guest := range node.Containers {
		guests[guest.Name()] = guest
		if guest.Workload == "" {
			continue
		}
		of := pod{key{guest.Namespace, guest.Workload}, guest.Pod}
		if pods[of] == nil {
			pods[of] = map[v1alpha1.Kind]float64{}
		}
		for kind, use := range guest.Use {
			pods[of][v1alpha1.Kind(kind)] += use
		}
	}
	for of, use := range pods {
		seen := b.of(of.key, now)
		for kind, value := range use {
			seen.used(kind).add(value)
		}
	}
	for of, sensitivity := range sensitivities(node, guests, capacity) {
		seen := b.of(of, now)
		for kind, measured := range sensitivity {
			seen.sensitivity[kind] = lost{measured, now}
		}
	}
}

func (s *seen) used(kind v1alpha1.Kind) *moments {
	if s.use[kind] == nil {
		s.use[kind] = &moments{}
	}
	return s.use[kind]
}

// recall takes in what this node said of the workload before the bridge began. Only losses that were seen since count
// for more.
func (s *seen) recall(parts []v1alpha1.NodeProfile, node string) {
	if s.recalled {
		return
	}
	s.recalled = true
	for _, part := range parts {
		if part.Node != node || s.last.Sub(part.ObservedAt.Time) >= v1alpha1.Oldest {
			continue
		}
		for _, resource := range part.Resources {
			if resource.Use != nil && resource.Use.Count > 0 {
				s.used(resource.Kind).join(*resource.Use)
			}
			if _, newer := s.sensitivity[resource.Kind]; !newer && resource.Sensitivity != nil {
				s.sensitivity[resource.Kind] = lost{*resource.Sensitivity, part.ObservedAt.Time}
			}
		}
	}
}

func (b book) of(of key, now time.Time) *seen {
	known := b[of]
	if known == nil {
		if len(b) >= workloads {
			b.forget()
		}
		known = &seen{use: map[v1alpha1.Kind]*moments{}, sensitivity: map[v1alpha1.Kind]lost{}}
		b[of] = known
	}
	known.last = now
	return known
}

// forget leaves out the one of which nothing was heard for longest.
func (b book) forget() {
	oldest := slices.MinFunc(slices.Collect(maps.Keys(b)), func(x, y key) int { return b[x].last.Compare(b[y].last) })
	delete(b, oldest)
}

// sensitivities by the table of interference: a loss is put down to the kind of resource on which the aggressor presses most.
// That is a guess where it presses on several; the spread does not know of it.
func sensitivities(node daemon.Node, guests map[string]daemon.Guest, capacity map[v1alpha1.Kind]float64) map[key]map[v1alpha1.Kind]v1alpha1.Measured {
	type sums struct{ weight, mean, variance float64 }
	found := map[key]map[v1alpha1.Kind]*sums{}
	for _, pair := range node.Interference {
		victim, known := guests[pair.Victim]
		aggressor, other := guests[pair.Aggressor]
		if !known || !other || victim.Workload == "" || pair.Events < 1 {
			continue
		}
		var most v1alpha1.Kind
		pressure := 0.0
		for _, kind := range v1alpha1.Kinds {
			if of := v1alpha1.Pressure(kind, aggressor.Use[string(kind)], capacity[kind]); of > pressure {
				most, pressure = kind, of
			}
		}
		if pressure < 0.01 {
			continue
		}
		of := key{victim.Namespace, victim.Workload}
		if found[of] == nil {
			found[of] = map[v1alpha1.Kind]*sums{}
		}
		if found[of][most] == nil {
			found[of][most] = &sums{}
		}
		// The interval of a pair has 95 %: four standard deviations.
		events, spread := float64(pair.Events), (pair.High-pair.Low)/4/pressure
		s := found[of][most]
		s.weight += events
		s.mean += events * pair.Loss / pressure
		s.variance += events * spread * spread
	}
	result := map[key]map[v1alpha1.Kind]v1alpha1.Measured{}
	for of, kinds := range found {
		result[of] = map[v1alpha1.Kind]v1alpha1.Measured{}
		for kind, s := range kinds {
			result[of][kind] = v1alpha1.Measured{
				Mean: short(s.mean / s.weight), Spread: short(math.Sqrt(s.variance / s.weight)), Count: int64(s.weight),
			}
		}
	}
	return result
}

// part is what is published of a workload.
func (s *seen) part(node string) v1alpha1.NodeProfile {
	part := v1alpha1.NodeProfile{Node: node, ObservedAt: metav1.NewTime(s.last)}
	for _, kind := range v1alpha1.Kinds {
		resource := v1alpha1.ProfileResource{Kind: kind}
		if lost, known := s.sensitivity[kind]; known && s.last.Sub(lost.at) < v1alpha1.Oldest {
			resource.Sensitivity = &lost.Measured
		}
		if use := s.use[kind]; use != nil {
			resource.Use = use.measured()
		}
		if resource.Use != nil || resource.Sensitivity != nil {
			part.Resources = append(part.Resources, resource)
		}
	}
	return part
}

// merge puts a node's part in the place of its last one. Of more nodes than fit, and of old ones, the latest count.
func merge(parts []v1alpha1.NodeProfile, own v1alpha1.NodeProfile) []v1alpha1.NodeProfile {
	now := own.ObservedAt.Time
	kept := []v1alpha1.NodeProfile{own}
	for _, part := range parts {
		if part.Node != own.Node && now.Sub(part.ObservedAt.Time) < v1alpha1.Oldest {
			kept = append(kept, part)
		}
	}
	slices.SortStableFunc(kept, func(a, b v1alpha1.NodeProfile) int { return b.ObservedAt.Compare(a.ObservedAt.Time) })
	kept = kept[:min(len(kept), v1alpha1.MaxNodes)]
	slices.SortFunc(kept, func(a, b v1alpha1.NodeProfile) int { return cmp.Compare(a.Node, b.Node) })
	return kept
}

// summarize says for people what nodes have seen.
func summarize(parts []v1alpha1.NodeProfile) v1alpha1.ProfileSummary {
	var sensitive []string
	uses := map[v1alpha1.Kind]string{}
	for _, kind := range v1alpha1.Kinds {
		// merge has left out what is old.
		use := v1alpha1.Pool(parts, time.Time{}, kind, func(r v1alpha1.ProfileResource) *v1alpha1.Measured { return r.Use })
		switch {
		case use == nil:
			uses[kind] = "?"
		case kind == v1alpha1.Cores:
			uses[kind] = fmt.Sprintf("%.3g", use.Mean)
		default:
			uses[kind] = fmt.Sprintf("%.3g GB/s", use.Mean/1e9)
		}
		of := v1alpha1.Pool(parts, time.Time{}, kind, func(r v1alpha1.ProfileResource) *v1alpha1.Measured { return r.Sensitivity })
		if of != nil && of.Mean > 0 {
			sensitive = append(sensitive, fmt.Sprintf("%s %.2g", kind, of.Mean))
		}
	}
	return v1alpha1.ProfileSummary{
		Nodes: int64(len(parts)), Cores: uses[v1alpha1.Cores], Memory: uses[v1alpha1.Memory], Cache: uses[v1alpha1.Cache],
		Sensitive: strings.Join(sensitive, ", "),
	}
}

// differ says whether a part is worth being written: it has something new, or a mean moved by a tenth.
func differ(old, new v1alpha1.NodeProfile) bool {
	if len(old.Resources) != len(new.Resources) || new.ObservedAt.Sub(old.ObservedAt.Time) > time.Hour {
		return true
	}
	moved := func(a, b *v1alpha1.Measured) bool {
		if a == nil || b == nil {
			return a != b
		}
		return math.Abs(a.Mean-b.Mean) > 0.1*math.Max(math.Abs(a.Mean), math.Abs(b.Mean))
	}
	for i := range old.Resources {
		a, b := old.Resources[i], new.Resources[i]
		if a.Kind != b.Kind || moved(a.Use, b.Use) || moved(a.Sensitivity, b.Sensitivity) {
			return true
		}
	}
	return false
}
