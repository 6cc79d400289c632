package predict

import (
	"math"
	"testing"

	"cotenant.dev/kubernetes/api/v1alpha1"
)

// Cores, memory, cache. A node with 10 CPUs, 100 GB/s and 1 MB of cache, of which half, a tenth, and 200 fills a second
// are used.
func half() Node {
	return Node{PerUse: perUse(Vector{10, 100e9, 1e6}), Use: Vector{5, 10e9, 200e6}}
}

func perUse(capacity Vector) (pressure Vector) {
	for i, kind := range v1alpha1.Kinds {
		pressure[i] = v1alpha1.Pressure(kind, 1, capacity[i])
	}
	return pressure
}

// Worked by hand.
// Holds cluster/scheduler.
func TestPredict(t *testing.T) {
	cores := Profile{Use: Vector{2, 0, 0}, Sensitivity: Vector{0.2, 0, 0}}
	for _, c := range []struct {
		name        string
		node        Node
		pod         Profile
		own, others float64
	}{
		{"nobody is there", Node{PerUse: perUse(Vector{10, 100e9, 1e6})}, cores, 0, 0},
		// 0.2 × 5/10
		{"half of the cores", half(), cores, 0.1, 0},
		// 0.5 × 10/100 + 0.3 × (200e6 / 1e6 / 1000)
		{"memory and cache", half(), Profile{Sensitivity: Vector{0, 0.5, 0.3}}, 0.05 + 0.06, 0},
		// Those there: 4 × 0.5 of a high one and 1 × 0.3 of a normal one; 2/10 is brought.
		{"others lose", Node{PerUse: perUse(Vector{10, 0, 0}), Weighted: Vector{4*0.5 + 0.3, 9, 9}}, cores, 0, 2.3 * 0.2},
		{"capacity is unknown", Node{Use: Vector{5, 5, 5}, Weighted: Vector{1, 1, 1}}, cores, 0, 0},
		{"no more than all is lost", half(), Profile{Sensitivity: Vector{7, 0, 0}}, 1, 0},
		{"an unknown profile", half(), Profile{}, 0, 0},
	} {
		got := c.node.Lost(&c.pod)
		if missed := c.node.Missed(&c.pod, 0); !near(got.Own, c.own) || !near(got.Others, c.others) || missed != nil {
			t.Errorf("%s: %+v %+v, want own %v, others %v", c.name, got, missed, c.own, c.others)
		}
	}
}

// Holds cluster/scheduler.
func TestGoals(t *testing.T) {
	// It loses 0.2 × 0.5 = 10 %, give or take 2 %.
	pod := Profile{Use: Vector{2, 0, 0}, Sensitivity: Vector{0.2, 0, 0}, Spread: Vector{0.04, 0, 0}}
	for goal, missed := range map[float64]bool{0: false, 0.85: false, 0.9: false, 0.91: false, 0.919: false, 0.93: true} {
		node := half()
		if got := node.Missed(&pod, goal); (got != nil) != missed || missed && got.Name != "" {
			t.Errorf("own goal %v: %+v", goal, got)
		}
	}
	// A victim that uses 1 of 5 used CPUs: (5 − 1 + 2)/10 × 0.5 = 30 % lost, give or take 6 %.
	victim := Profile{Use: Vector{1, 0, 0}, Sensitivity: Vector{0.5, 0, 0}, Spread: Vector{0.1, 0, 0}}
	for share, missed := range map[float64]bool{0.6: false, 0.7: false, 0.75: false, 0.77: true, 0.9: true} {
		node := half()
		node.Goals = []Goal{{victim, share, "db"}}
		got := node.Missed(&pod, 0)
		if (got != nil) != missed || missed && (got.Name != "db" || !near(got.Kept, 0.7)) {
			t.Errorf("goal of a victim %v: %+v", share, got)
		}
	}
	// It misses its goal anyway, and who comes takes nothing noticeable from it.
	small := Profile{Use: Vector{0.05, 0, 0}}
	node := half()
	node.Goals = []Goal{{victim, 0.99, "db"}}
	if got := node.Missed(&small, 0); got != nil {
		t.Errorf("nobody is to blame: %+v", got)
	}
}

// Holds cluster/scheduler.
func TestScore(t *testing.T) {
	for loss, want := range map[float64]int64{2.5: 100, 3: 100, 3.004: 100, 3.01: 99, 3.5: 50, 4: 0, 10: 0} {
		if got := Score(loss, 3); got != want {
			t.Errorf("%v: %d, want %d", loss, got, want)
		}
	}
	lost := Loss{Own: 0.1, Others: 0.2}
	if !near(lost.Total(High), 0.6) || !near(lost.Total(Weight("low")), 0.225) || Weight("") != Normal {
		t.Errorf("%v", lost.Total(High))
	}
}

func near(a, b float64) bool {
	return math.Abs(a-b) < 1e-9
}
