package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	nri "github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"cotenant.dev/kubernetes/internal/bridge"
	"cotenant.dev/kubernetes/internal/daemon"
	"cotenant.dev/kubernetes/internal/kubelet"
)

// runtime is a container runtime as far as NRI is concerned, by NRI's own code for runtimes.
type runtime struct {
	t    testing.TB
	dir  string
	mu   sync.Mutex
	pods map[string]*api.PodSandbox
	ctrs map[string]*api.Container
	nri  *nri.Adaptation
	door *door
	// synced is how long the plugin took to answer with all containers.
	synced chan time.Duration
	asked  int
}

func newRuntime(t testing.TB, dir string) *runtime {
	return &runtime{t: t, dir: dir, pods: map[string]*api.PodSandbox{}, ctrs: map[string]*api.Container{}, synced: make(chan time.Duration, 16)}
}

func (r *runtime) start() {
	r.t.Helper()
	adaptation, err := nri.New("fake", "1.0", r.synchronize, func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked++
		return nil, nil
	}, nri.WithPluginPath(filepath.Join(r.dir, "plugins")), nri.WithPluginConfigPath(filepath.Join(r.dir, "conf.d")),
		nri.WithSocketPath(filepath.Join(r.dir, "inner.sock")))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := adaptation.Start(); err != nil {
		r.t.Fatal(err)
	}
	<-r.synced // of plugins that the runtime starts itself, of which there are none
	r.nri, r.door = adaptation, newDoor(r.t, filepath.Join(r.dir, "nri.sock"), filepath.Join(r.dir, "inner.sock"))
}

func (r *runtime) stop() {
	r.door.close()
	r.nri.Stop()
	r.nri = nil
}

// door is the runtime's socket. NRI leaves connections to the end of the process; with a door they end when it does.
type door struct {
	listener net.Listener
	mu       sync.Mutex
	conns    []net.Conn
}

func newDoor(t testing.TB, outer, inner string) *door {
	t.Helper()
	listener, err := net.Listen("unix", outer)
	if err != nil {
		t.Fatal(err)
	}
	d := &door{listener: listener}
	go func() {
		for {
			out, err := listener.Accept()
			if err != nil {
				return
			}
			in, err := net.Dial("unix", inner)
			if err != nil {
				out.Close()
				continue
			}
			d.mu.Lock()
			d.conns = append(d.conns, in, out)
			d.mu.Unlock()
			pipe := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				to.Close()
			}
			go pipe(in, out)
			go pipe(out, in)
		}
	}()
	return d
}

func (d *door) close() {
	d.listener.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, conn := range d.conns {
		conn.Close()
	}
}

func (r *runtime) synchronize(ctx context.Context, plugin nri.SyncCB) error {
	r.mu.Lock()
	pods, ctrs := slices.Collect(maps.Values(r.pods)), slices.Collect(maps.Values(r.ctrs))
	r.mu.Unlock()
	begin := time.Now()
	updates, err := plugin(ctx, pods, ctrs)
	r.synced <- time.Since(begin)
	if len(updates) > 0 {
		r.t.Errorf("the plugin wants to change containers: %v", updates)
	}
	return err
}

// add puts a container there, as if it ran before.
func (r *runtime) add(name string, labels, annotations map[string]string) *api.Container {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod := &api.PodSandbox{Id: "pod-" + name, Name: name, Namespace: "shop", Uid: name, Labels: labels, Annotations: annotations}
	ctr := &api.Container{Id: "ctr-" + name, PodSandboxId: pod.Id, Name: "main", State: api.ContainerState_CONTAINER_RUNNING,
		Linux: &api.LinuxContainer{CgroupsPath: "kubepods-pod" + strings.ReplaceAll(name, "-", "_") + ".slice:cri-containerd:" + name}}
	r.pods[pod.Id], r.ctrs[ctr.Id] = pod, ctr
	return ctr
}

// run starts a container as a runtime does: not while a plugin is told of all.
func (r *runtime) run(name string, labels, annotations map[string]string) {
	r.t.Helper()
	defer r.nri.BlockPluginSync().Unblock()
	ctr := r.add(name, labels, annotations)
	pod, ctx := r.pods[ctr.PodSandboxId], context.Background()
	if err := r.nri.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod}); err != nil {
		r.t.Fatal(err)
	}
	created, err := r.nri.CreateContainer(ctx, &api.CreateContainerRequest{Pod: pod, Container: ctr})
	if err != nil || len(created.GetUpdate()) > 0 {
		r.t.Fatalf("creating %s: %v, %v", name, created, err)
	}
	if err := r.nri.StartContainer(ctx, &api.StartContainerRequest{Pod: pod, Container: ctr}); err != nil {
		r.t.Fatal(err)
	}
}

// end ends a container and its pod.
func (r *runtime) end(name string) {
	r.t.Helper()
	defer r.nri.BlockPluginSync().Unblock()
	pod, ctr, ctx := r.pods["pod-"+name], r.ctrs["ctr-"+name], context.Background()
	if _, err := r.nri.StopContainer(ctx, &api.StopContainerRequest{Pod: pod, Container: ctr}); err != nil {
		r.t.Fatal(err)
	}
	if err := r.nri.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: pod, Container: ctr}); err != nil {
		r.t.Fatal(err)
	}
	if err := r.nri.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: pod}); err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, pod.Id)
	delete(r.ctrs, ctr.Id)
}

// agent is a daemon as far as the bridge sees one.
type agent struct {
	listener net.Listener
	mu       sync.Mutex
	lists    [][]daemon.Container
}

func newAgent(t *testing.T, socket string) *agent {
	t.Helper()
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{listener: listener}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go a.serve(conn)
		}
	}()
	return a
}

func (a *agent) serve(conn net.Conn) {
	defer conn.Close()
	var request struct {
		Version    int
		Verb       string
		Containers []daemon.Container
	}
	// The daemon refuses more than 4 MiB.
	if json.NewDecoder(io.LimitReader(conn, 4<<20)).Decode(&request) != nil || request.Version != 1 || request.Verb != "containers" {
		fmt.Fprintln(conn, `{"error":"this is not a request"}`)
		return
	}
	a.mu.Lock()
	a.lists = append(a.lists, request.Containers)
	a.mu.Unlock()
	fmt.Fprintf(conn, "{\"ok\":{\"taken\":%d,\"remarks\":[]}}\n", len(request.Containers))
}

func (a *agent) close() {
	a.listener.Close()
}

// last is the list that was told last; nil before the first one.
func (a *agent) last() []daemon.Container {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.lists) == 0 {
		return nil
	}
	return a.lists[len(a.lists)-1]
}

func (a *agent) names() string {
	var names []string
	for _, container := range a.last() {
		names = append(names, container.Pod)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("it does not come true: %s", what)
}

// world has a runtime and a bridge, which ends with the test.
type world struct {
	*runtime
	socket string
}

func newWorld(t testing.TB) world {
	dir := t.TempDir()
	return world{newRuntime(t, dir), filepath.Join(dir, "control.sock")}
}

func (w world) bridge() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		bridge.New(filepath.Join(w.dir, "nri.sock"), kubelet.New(filepath.Join(w.dir, "kubelet.sock")), daemon.Client{Socket: w.socket}, nil).Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// Holds cluster/runtime.
func TestContainersComeAndGo(t *testing.T) {
	w := newWorld(t)
	w.add("old", nil, nil)
	w.start()
	defer w.stop()
	a := newAgent(t, w.socket)
	defer a.close()
	defer w.bridge()()
	eventually(t, "who was there is told", func() bool { return a.names() == "old" })
	w.run("web-7d9f8c-x2x4z", map[string]string{"app": "web", "pod-template-hash": "7d9f8c"},
		map[string]string{"cotenant.dev/class": "high", "cotenant.dev/goal": "90%", "other": "x"})
	eventually(t, "who comes is told", func() bool { return a.names() == "old web-7d9f8c-x2x4z" })
	got := a.last()[slices.IndexFunc(a.last(), func(c daemon.Container) bool { return c.Pod != "old" })]
	want := daemon.Container{
		CGroup:    "/kubepods.slice/kubepods-podweb_7d9f8c_x2x4z.slice/cri-containerd-web-7d9f8c-x2x4z.scope",
		Namespace: "shop", Pod: "web-7d9f8c-x2x4z", Container: "main", Workload: "web",
		Labels: map[string]string{"app": "web", "pod-template-hash": "7d9f8c"}, Class: "high", Goal: "90%",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	// Nobody owns it: no other pod would read its profile.
	if old := a.last()[slices.IndexFunc(a.last(), func(c daemon.Container) bool { return c.Pod == "old" })]; old.Workload != "" {
		t.Errorf("%v", old)
	}
	w.end("old")
	eventually(t, "who goes is not told any more", func() bool { return a.names() == "web-7d9f8c-x2x4z" })
}

// Annotations are the pod's: a sidecar is told apart by its name.
func TestContainersOfOnePod(t *testing.T) {
	w := newWorld(t)
	w.add("db", nil, map[string]string{"cotenant.dev/class": "high", "cotenant.dev/goal": "80%", "cotenant.dev/profile": "data"})
	side := w.add("side", nil, nil)
	delete(w.pods, side.PodSandboxId)
	side.Name, side.PodSandboxId = "proxy", "pod-db"
	w.start()
	defer w.stop()
	a := newAgent(t, w.socket)
	defer a.close()
	defer w.bridge()()
	eventually(t, "both are told", func() bool { return a.names() == "db db" })
	said := map[string]string{}
	for _, of := range a.last() {
		said[of.Container] = fmt.Sprint(filepath.Base(of.CGroup), " ", of.Workload, " ", of.Class, " ", of.Goal)
	}
	want := map[string]string{"main": "cri-containerd-db.scope data high 80%", "proxy": "cri-containerd-side.scope data high 80%"}
	if !maps.Equal(said, want) {
		t.Errorf("%v, want %v", said, want)
	}
	blocked := w.nri.BlockPluginSync()
	_, err := w.nri.StopContainer(context.Background(), &api.StopContainerRequest{Pod: w.pods["pod-db"], Container: side})
	blocked.Unblock()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other one stays", func() bool { return a.names() == "db" && a.last()[0].Container == "main" })
}

// Holds cluster/runtime.
func TestOrderOfStartsAndRestarts(t *testing.T) {
	w := newWorld(t)
	// The bridge is there first, then the runtime, then the daemon.
	stop := w.bridge()
	w.add("one", nil, nil)
	w.start()
	<-w.synced
	a := newAgent(t, w.socket)
	eventually(t, "a late daemon is told", func() bool { return a.names() == "one" })
	// The daemon is another one, which knows nothing.
	a.close()
	a = newAgent(t, w.socket)
	eventually(t, "a new daemon is told", func() bool { return a.names() == "one" })
	// The runtime is another one; in between a container came and one went.
	w.stop()
	w.add("two", nil, nil)
	w.mu.Lock()
	delete(w.ctrs, "ctr-one")
	w.mu.Unlock()
	w.start()
	<-w.synced
	eventually(t, "what changed meanwhile is told", func() bool { return a.names() == "two" })
	w.run("three", nil, nil)
	eventually(t, "events come from the new runtime", func() bool { return a.names() == "three two" })
	// The bridge is another one. Before the runtime has told it of all containers it tells of none.
	stop()
	a.mu.Lock()
	before := len(a.lists)
	a.mu.Unlock()
	stop = w.bridge()
	defer stop()
	<-w.synced
	eventually(t, "the new bridge tells", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.lists) > before
	})
	a.mu.Lock()
	lists := a.lists[before:]
	a.mu.Unlock()
	for _, list := range lists {
		if len(list) != 2 {
			t.Errorf("a list of %d", len(list))
		}
	}
	w.stop()
	a.close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked > 0 {
		t.Errorf("the plugin asked for %d updates by itself", w.asked)
	}
}

// large is a node with 500 containers, each with 20 long labels.
func large(t testing.TB) world {
	w := newWorld(t)
	for i := range 500 {
		labels := map[string]string{}
		for j := range 20 {
			labels[fmt.Sprintf("example.org/label-%d", j)] = strings.Repeat("v", 60)
		}
		w.add(fmt.Sprintf("pod-%03d", i), labels, nil)
	}
	return w
}

// A large node. The limit is NRI's: who takes 2 s is disconnected, and would tell nobody of anything.
// Promise cluster/runtime: The bridge never delays the container runtime, whatever the kubelet does; runtime, daemon
// and bridge may start and end in any order.
func TestManyContainersAtOnce(t *testing.T) {
	w := large(t)
	w.start()
	defer w.stop()
	// There is no daemon: that must not hold the runtime up.
	defer w.bridge()()
	<-w.synced
	a := newAgent(t, w.socket)
	defer a.close()
	eventually(t, "all are told", func() bool { return len(a.last()) == 500 })
}

// How long a runtime waits for the bridge's answer to the list of all containers, NRI's transport included.
func BenchmarkResync(b *testing.B) {
	w := large(b)
	var waited time.Duration
	for b.Loop() {
		w.start()
		stop := w.bridge()
		waited += <-w.synced
		stop()
		w.stop()
	}
	b.ReportMetric(waited.Seconds()*1e3/float64(b.N), "ms/answer")
}

// Holds cluster/containers.
func TestHostileNamesAndLabels(t *testing.T) {
	w := newWorld(t)
	labels := map[string]string{"ok": "yes", "escape": "\x1b[2J", "long": strings.Repeat("x", 1<<16), "\n": "x"}
	for i := range 1000 {
		labels[fmt.Sprintf("zz-%04d", i)] = "x"
	}
	w.add("good", labels, map[string]string{"cotenant.dev/class": "high\n", "cotenant.dev/goal": strings.Repeat("9", 1<<16), "cotenant.dev/metric": "ipc"})
	w.add("bad", nil, nil).Name = "../\x1b]0;"
	w.add("nowhere", nil, nil).Linux = nil
	w.add("outside", nil, nil).Linux.CgroupsPath = "/../../etc"
	w.add("orphan", nil, nil).PodSandboxId = "nobody"
	w.pods["pod-orphan"].Namespace = "a b"
	w.start()
	defer w.stop()
	a := newAgent(t, w.socket)
	defer a.close()
	defer w.bridge()()
	eventually(t, "it is told", func() bool { return a.last() != nil })
	if a.names() != "good" {
		t.Fatalf("told: %v", a.names())
	}
	good := a.last()[0]
	if len(good.Labels) != 64 || good.Labels["ok"] != "yes" || good.Labels["escape"]+good.Labels["long"] != "" {
		t.Errorf("%d labels: %v", len(good.Labels), good.Labels)
	}
	if good.Class != "" || good.Goal != "" || good.Metric != "ipc" {
		t.Errorf("annotations: %q %q %q", good.Class, good.Goal, good.Metric)
	}
}

// Each label is as Kubernetes allows it. All together are more than the daemon reads.
// Holds cluster/containers.
func TestHostileLabelsOfAllPodsTogether(t *testing.T) {
	w := newWorld(t)
	w.start()
	defer w.stop()
	a := newAgent(t, w.socket)
	defer a.close()
	defer w.bridge()()
	<-w.synced
	labels := map[string]string{}
	for i := range 64 {
		labels[fmt.Sprintf("%s/%s-%02d", strings.Repeat("d", 253), strings.Repeat("k", 60), i)] = strings.Repeat("v", 63)
	}
	const hogs = 200
	for i := range hogs {
		w.run(fmt.Sprintf("hog-%03d", i), labels, nil)
	}
	w.run("good", map[string]string{"app": "db", "tier": "1"}, nil)
	eventually(t, "all are told", func() bool { return len(a.last()) == hogs+1 })
	for _, of := range a.last() {
		if of.Pod == "good" && len(of.Labels) != 2 || len(of.Labels) == 0 || of.Pod != "good" && len(of.Labels) == 64 {
			t.Errorf("%s has %d labels", of.Pod, len(of.Labels))
		}
	}
}
