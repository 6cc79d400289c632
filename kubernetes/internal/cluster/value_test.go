package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"

	"cotenant.dev/kubernetes/api/v1alpha1"
	"cotenant.dev/kubernetes/internal/publish"
)

// What is played: pods of one thread arrive at random (Poisson), with programs drawn alike and work of an exponential
// distribution. Three of ten have a goal.
const (
	worldNodes = 6
	meanWorkS  = 600.0
	leastWorkS = 30.0
	horizonS   = 3600.0
	goalShare  = 0.3
	goal       = 0.9
	// firstSeed is beyond those with which the plugin was worked on.
	firstSeed = 100
	// tolerance is by how much work may differ, in percent, where nothing is known of pods.
	tolerance = 1.0
	tickS     = 10.0
	ticks     = 4
)

// arm is a way to schedule: a profile of the scheduler, and what is known of workloads.
type arm struct{ name, scheduler, profiles string }

const (
	// rough profiles were measured on other mixes and are wrong by up to 20 %; exact ones are only of other mixes.
	rough = "rough"
	exact = "exact"
	none  = "none"
)

var arms = []arm{
	{"spread", "spread", none},
	{"bin-pack", "pack", none},
	{"spread + Cotenant", "spread-cotenant", rough},
	{"bin-pack + Cotenant", "pack-cotenant", rough},
	{"spread + Cotenant, exact profiles", "spread-cotenant", exact},
	{"bin-pack + Cotenant, exact profiles", "pack-cotenant", exact},
	{"spread + Cotenant, no profiles", "spread-cotenant", none},
	{"bin-pack + Cotenant, no profiles", "pack-cotenant", none},
}

// valueProfiles of the scheduler. Simulated time runs faster than a clock on the wall: data do not get stale.
func valueProfiles(weight string) string {
	ours := `{ multiPoint: { enabled: [{ name: Cotenant, weight: ` + weight + ` }] } }`
	args := `{ name: Cotenant, args: { staleSeconds: 1e6, events: false } }`
	pack := `{ name: NodeResourcesFit, args: { scoringStrategy: { type: MostAllocated, resources: [{ name: cpu, weight: 1 }, { name: memory, weight: 1 }] } } }`
	return `  - { schedulerName: spread }
  - { schedulerName: pack, pluginConfig: [` + pack + `] }
  - { schedulerName: spread-cotenant, plugins: ` + ours + `, pluginConfig: [` + args + `] }
  - { schedulerName: pack-cotenant, plugins: ` + ours + `, pluginConfig: [` + args + `, ` + pack + `] }
`
}

// arrival is a pod that is to come.
type arrival struct {
	atS, workS float64
	program    string
	goal       bool
	name       string
	node       string
	begunS     float64
}

// arrivals of a seed, the same for all arms. The cluster begins with as many as it would have after long.
func arrivals(seed uint64, load float64, programs []string) []arrival {
	random := rand.New(rand.NewPCG(seed, 1))
	var list []arrival
	perS := load * worldNodes * cores / meanWorkS
	come := func(atS float64) {
		list = append(list, arrival{
			atS: atS, workS: math.Max(random.ExpFloat64()*meanWorkS, leastWorkS),
			program: programs[random.IntN(len(programs))], goal: random.Float64() < goalShare,
		})
	}
	for range int(math.Round(load * worldNodes * cores)) {
		come(0)
	}
	for atS := random.ExpFloat64() / perS; atS < horizonS; atS += random.ExpFloat64() / perS {
		come(atS)
	}
	return list
}

// world is a cluster of its own among others in the same control plane: one arm with one seed.
type world struct {
	c          *cluster
	arm        arm
	seed       uint64
	sim        *simulator
	epoch      time.Time
	atS        float64
	nodes      []string
	publishers map[string]*publish.Publisher
	// dirty are nodes that have changed, and in how many ticks their agents may still write that.
	dirty    map[string]int
	coming   []arrival
	waiting  map[string]*arrival
	running  map[string]*arrival
	finished bool
	result   outcome
	waitedS  float64
	begun    int
}

// outcome of a world.
type outcome struct {
	// workS is done by the end, in seconds alone.
	workS float64
	// goals there were, and kept ones.
	goals, kept float64
	// speed is the mean over pods of their speed over that alone.
	speeds []float64
	// nodesUsed is the integral over time of nodes that have pods, in seconds.
	nodesUsed float64
	waitS     float64
}

func (w *world) add(workS, ranS float64, of *arrival) {
	w.result.workS += workS
	// Of who has just begun nothing can be said.
	if ranS < leastWorkS {
		return
	}
	speed := math.Min(workS/ranS, 1)
	w.result.speeds = append(w.result.speeds, speed)
	if of.goal {
		w.result.goals++
		if speed >= goal-1e-9 {
			w.result.kept++
		}
	}
}

func (w *world) clock() time.Time {
	return w.epoch.Add(time.Duration(w.atS * float64(time.Second)))
}

// step lets time go on to the next moment at which the scheduler has something to decide, and returns the pod that
// comes then, if it is one that comes.
func (w *world) step(ctx context.Context) *arrival {
	for {
		until := horizonS
		if len(w.coming) > 0 {
			until = w.coming[0].atS
		}
		tick := math.Inf(1)
		if len(w.dirty) > 0 {
			tick = (math.Floor(w.atS/tickS) + 1) * tickS
		}
		advanced := w.sim.advance(math.Min(until, tick))
		used := map[string]bool{}
		for _, of := range w.running {
			used[of.node] = true
		}
		w.result.nodesUsed += float64(len(used)) * (advanced.AtS - w.atS)
		w.waitedS += float64(len(w.waiting)) * (advanced.AtS - w.atS)
		w.atS = advanced.AtS
		for _, ended := range advanced.Ended {
			of := w.running[ended.Pod]
			w.add(of.workS, w.atS-of.begunS, of)
			delete(w.running, ended.Pod)
			w.dirty[ended.Node] = ticks
			now := int64(0)
			if err := w.c.client.CoreV1().Pods("default").Delete(ctx, ended.Pod, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
				panic(err)
			}
		}
		switch {
		case len(advanced.Ended) > 0:
			if len(w.waiting) > 0 {
				return nil
			}
		case w.atS == tick:
			w.publish(ctx)
			if len(w.waiting) > 0 {
				return nil
			}
		case len(w.coming) > 0:
			next := &w.coming[0]
			w.coming = w.coming[1:]
			return next
		default:
			w.end()
			return nil
		}
	}
}

// publish tells of the nodes on which something has changed, as their agents would every 10 s: at once what
// changes a load by 5 %, the rest within 30 s.
func (w *world) publish(ctx context.Context) {
	for _, name := range w.nodes {
		if w.dirty[name] == 0 {
			continue
		}
		if w.dirty[name]--; w.dirty[name] == 0 {
			delete(w.dirty, name)
		}
		node := w.sim.node(name).Node
		for i := range node.Containers {
			node.Containers[i].Workload = "" // its profile is given
			if w.running[node.Containers[i].Pod].goal {
				share := goal
				node.Containers[i].Class, node.Containers[i].Goal = "high", &share
			}
		}
		if err := w.publishers[name].Publish(ctx, node); err != nil {
			panic(err)
		}
	}
}

// end takes in who is still there.
func (w *world) end() {
	w.finished = true
	for _, name := range w.nodes {
		for _, pod := range w.sim.node(name).truth {
			of := w.running[pod.Pod]
			w.add(pod.DoneS, w.atS-of.begunS, of)
		}
	}
	// Who was kept waiting until the end has not kept its goal either.
	for _, of := range w.waiting {
		if of.goal && w.atS-of.atS >= leastWorkS {
			w.result.goals++
		}
	}
	w.result.nodesUsed /= horizonS
	w.result.waitS = w.waitedS / float64(max(w.begun, 1))
}

func (w *world) create(ctx context.Context, of *arrival) {
	of.name = fmt.Sprintf("%s-p%d", w.nodes[0], len(w.coming))
	annotations := map[string]string{"cotenant.dev/profile": profileName(w.arm.profiles, w.seed, of.program)}
	if of.goal {
		annotations["cotenant.dev/class"], annotations["cotenant.dev/goal"] = "high", fmt.Sprintf("%.0f%%", 100*goal)
	}
	var terms []v1.NodeSelectorTerm
	for _, node := range w.nodes {
		terms = append(terms, v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{node}}}})
	}
	size := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi")}
	_, err := w.c.client.CoreV1().Pods("default").Create(ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: of.name, Annotations: annotations},
		Spec: v1.PodSpec{
			SchedulerName: w.arm.scheduler,
			Containers:    []v1.Container{{Name: "main", Image: "none", Resources: v1.ResourceRequirements{Requests: size}}},
			Affinity:      &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		panic(err)
	}
	w.waiting[of.name] = of
}

// settled says whether the scheduler has decided on a pod: it is bound, or refused for now.
func settled(pods listers.PodNamespaceLister, name string) (node string, decided bool) {
	pod, err := pods.Get(name)
	if err != nil {
		return "", false
	}
	refused := slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse
	})
	return pod.Spec.NodeName, pod.Spec.NodeName != "" || refused
}

// take starts those that were bound.
func (w *world) take(ctx context.Context, pods listers.PodNamespaceLister) {
	for name, of := range w.waiting {
		node, _ := settled(pods, name)
		if node == "" {
			continue
		}
		delete(w.waiting, name)
		w.sim.start(node, name, of.program, of.workS)
		of.node, of.begunS = node, w.atS
		w.running[name] = of
		w.dirty[node] = ticks
		w.begun++
		status := fmt.Sprintf(`{"status":{"phase":"Running","startTime":%q}}`, w.clock().UTC().Format(time.RFC3339))
		if _, err := w.c.client.CoreV1().Pods("default").Patch(ctx, name, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
			panic(err)
		}
	}
}

func profileName(kind string, seed uint64, program string) string {
	return fmt.Sprintf("%s-%d-%s", kind, seed, strings.ToLower(program))
}

// write publishes profiles; with an error each value is off by up to so much.
func (c *cluster) writeProfiles(kind string, seed uint64, found map[string]measured, off float64) {
	random := rand.New(rand.NewPCG(seed, 2))
	wrong := func(value float64) float64 { return value * (1 + off*(2*random.Float64()-1)) }
	for _, program := range spec {
		of, is := found[program]
		if !is {
			continue
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.WorkloadProfile{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WorkloadProfile"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: profileName(kind, seed, program)},
			Spec: v1alpha1.WorkloadProfileSpec{Resources: []v1alpha1.ProfileResource{{
				Kind: v1alpha1.Memory, Use: &v1alpha1.Measured{Mean: wrong(of.use)},
				Sensitivity: &v1alpha1.Measured{Mean: wrong(of.sensitivity), Spread: of.spread},
			}}},
		})
		if err == nil {
			err = c.create(&unstructured.Unstructured{Object: fields})
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

// idle waits until no pod is in the scheduler's queues but those that it refused.
func (c *cluster) idle(client *http.Client) {
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		left, err := c.metric(client, func(line string) bool {
			return strings.HasPrefix(line, `scheduler_pending_pods{queue="active"}`) || strings.HasPrefix(line, `scheduler_pending_pods{queue="backoff"}`)
		})
		if err == nil && len(left) == 2 && strings.HasSuffix(left[0], " 0") && strings.HasSuffix(left[1], " 0") {
			return
		}
	}
	panic("the scheduler is not idle")
}

// metric has the scheduler's lines that are wanted.
func (c *cluster) metric(client *http.Client, wanted func(string) bool) (lines []string, err error) {
	request, err := http.NewRequest(http.MethodGet, "https://"+c.secure+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.config.BearerToken)
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the scheduler's metrics: %s", answer.Status)
	}
	for scanner := bufio.NewScanner(answer.Body); scanner.Scan(); {
		if wanted(scanner.Text()) {
			lines = append(lines, scanner.Text())
		}
	}
	return lines, nil
}

func insecure() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
}

// each calls for all of them, some at once, and ends the test if one panics.
func each[T any](t *testing.T, of []T, do func(T)) {
	t.Helper()
	var failed sync.Once
	var why any
	var done sync.WaitGroup
	free := make(chan struct{}, 16)
	for _, one := range of {
		free <- struct{}{}
		done.Go(func() {
			defer func() {
				if wrong := recover(); wrong != nil {
					failed.Do(func() { why = wrong })
				}
				<-free
			}()
			do(one)
		})
	}
	done.Wait()
	if why != nil {
		t.Fatal(why)
	}
}

// play plays the arrivals of all seeds with all arms.
func play(t *testing.T, weight string, played []arm, first, seeds uint64, load float64, programs []string) map[string][]outcome {
	c, ctx, client := plane(t), t.Context(), insecure()
	c.schedule(valueProfiles(weight))
	epoch := time.Now().Truncate(time.Minute)
	var worlds []*world
	for seed := first; seed < first+seeds; seed++ {
		// What is known was measured on other mixes than those that come.
		found := characterize(simulate(t), programs, rand.New(rand.NewPCG(seed, 3)))
		c.writeProfiles(rough, seed, found, 0.2)
		c.writeProfiles(exact, seed, found, 0)
		for _, arm := range played {
			w := &world{
				c: c, arm: arm, seed: seed, sim: simulate(t), epoch: epoch, coming: arrivals(seed, load, programs),
				publishers: map[string]*publish.Publisher{}, dirty: map[string]int{}, waiting: map[string]*arrival{}, running: map[string]*arrival{},
			}
			for i := range worldNodes {
				w.nodes = append(w.nodes, fmt.Sprintf("w%d-n%d", len(worlds), i))
			}
			worlds = append(worlds, w)
		}
	}
	each(t, worlds, func(w *world) {
		for _, name := range w.nodes {
			c.sized(name, fmt.Sprint(cores))
			w.publishers[name] = publish.NewAt(c.dynamic, name, w.clock)
			w.dirty[name] = ticks
		}
		w.publish(ctx)
	})
	factory := informers.NewSharedInformerFactory(c.client, 0)
	pods := factory.Core().V1().Pods().Lister().Pods("default")
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for rounds, left := 0, worlds; len(left) > 0; rounds++ {
		var mu sync.Mutex
		come := map[*world]*arrival{}
		each(t, left, func(w *world) {
			if next := w.step(ctx); next != nil {
				mu.Lock()
				come[w] = next
				mu.Unlock()
			}
		})
		each(t, left, func(w *world) {
			if come[w] != nil {
				w.create(ctx, come[w])
			}
		})
		for _, of := range come {
			c.eventually("the scheduler decides on "+of.name, func() bool {
				_, decided := settled(pods, of.name)
				return decided
			})
		}
		c.idle(client)
		each(t, left, func(w *world) { w.take(ctx, pods) })
		left = slices.DeleteFunc(slices.Clone(left), func(w *world) bool { return w.finished })
		if rounds%100 == 0 {
			t.Logf("round %d: the first is at %.0f s, %d are left", rounds, worlds[0].atS, len(left))
		}
	}
	results := map[string][]outcome{}
	for _, w := range worlds {
		results[w.arm.name] = append(results[w.arm.name], w.result)
	}
	return results
}

// interval is a mean with its 95 % (Student's t).
func interval(values []float64) string {
	// Two-sided 5 % by degrees of freedom.
	t := []float64{12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09}
	if len(values) == 0 {
		return "nothing to compare with"
	}
	n, m := len(values), mean(values)
	if n < 2 {
		return fmt.Sprintf("%+.1f", m)
	}
	squares := 0.0
	for _, value := range values {
		squares += (value - m) * (value - m)
	}
	half := t[min(n-2, len(t)-1)] * math.Sqrt(squares/float64(n-1)/float64(n))
	return fmt.Sprintf("%+.1f ± %.1f", m, half)
}

// TestDoesItPay plays arrivals through a real kube-scheduler, with and without us, on nodes that are simulated. By
// environment: COTENANT_SEEDS, from COTENANT_FIRST on; COTENANT_LOAD, the share of the cores that would be busy if nobody
// lost speed; COTENANT_ARMS, by their places in the list of arms, such as 0123; COTENANT_WEIGHT of the plugin;
// COTENANT_QUIET takes only programs that neither lose nor press.
// Promise cluster/pays: On simulated nodes, which slow pods as `sim --mix` predicts, the scheduler keeps more goals
// than the stock scheduler.
func TestDoesItPay(t *testing.T) {
	if os.Getenv("COTENANT_LAB") == "" {
		t.Skip("COTENANT_LAB names no cotenant-lab to simulate nodes with")
	}
	first, seeds, weight, load, wanted := uint64(firstSeed), uint64(2), "20", 0.5, ""
	for name, into := range map[string]any{"FIRST": &first, "SEEDS": &seeds, "WEIGHT": &weight, "LOAD": &load, "ARMS": &wanted} {
		if text := os.Getenv("COTENANT_" + name); text != "" {
			if _, err := fmt.Sscan(text, into); err != nil {
				t.Fatalf("COTENANT_%s=%s: %v", name, text, err)
			}
		}
	}
	played := arms
	if wanted != "" {
		played = nil
		for i, arm := range arms {
			if strings.ContainsRune(wanted, rune('0'+i)) {
				played = append(played, arm)
			}
		}
	}
	programs, quiet := spec, os.Getenv("COTENANT_QUIET") != ""
	if quiet {
		programs = nil
		for program, of := range characterize(simulate(t), spec, rand.New(rand.NewPCG(99, 3))) {
			if of.loses < 0.01 && of.use < 2e8 {
				programs = append(programs, program)
			}
		}
		slices.Sort(programs)
		t.Log(programs)
	}
	results := play(t, weight, played, first, seeds, load, programs)
	var table []string
	row := func(format string, args ...any) { table = append(table, fmt.Sprintf(format, args...)) }
	row("| arm | work, h | goals kept | mean speed | nodes in use | wait, s | work against stock | goals against stock, points |")
	for _, arm := range played {
		of := results[arm.name]
		base := results[strings.Split(arm.name, " ")[0]]
		var work, kept, goals, speeds, used, wait, more, better []float64
		for seed, o := range of {
			work, kept, goals = append(work, o.workS/3600), append(kept, o.kept), append(goals, o.goals)
			speeds, used, wait = append(speeds, o.speeds...), append(used, o.nodesUsed), append(wait, o.waitS)
			t.Logf("%s, seed %d: %.2f h, %.0f of %.0f goals kept", arm.name, first+uint64(seed), o.workS/3600, o.kept, o.goals)
			if seed < len(base) {
				more = append(more, 100*(o.workS/base[seed].workS-1))
				better = append(better, 100*(o.kept/o.goals-base[seed].kept/base[seed].goals))
			}
		}
		row("| %s | %.1f | %.1f %% | %.3f | %.2f | %.1f | %s %% | %s |", arm.name, mean(work), 100*mean(kept)/mean(goals), mean(speeds),
			mean(used), mean(wait), interval(more), interval(better))
		// Few seeds tell no figure, but who knows what pods cost each other keeps no fewer goals, give or take two of forty.
		if arm.profiles == rough && !quiet && len(better) > 0 && mean(better) < -5 {
			t.Errorf("%s: %+.1f points of goals against stock", arm.name, mean(better))
		}
		if arm.profiles == none && len(more) > 0 && math.Abs(mean(more)) > tolerance {
			t.Errorf("%s: %+.2f %% of the work of stock", arm.name, mean(more))
		}
	}
	t.Logf("load %v, weight %s, %d seeds:\n%s", load, weight, seeds, strings.Join(table, "\n"))
}
