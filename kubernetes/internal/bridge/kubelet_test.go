package bridge_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"cotenant.dev/kubernetes/internal/daemon"
)

// fakeKubelet answers at the socket that the bridge of a world asks.
type fakeKubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	t      *testing.T
	socket string
	server *grpc.Server
	mu     sync.Mutex
	answer func(context.Context) *podresources.ListPodResourcesResponse
	asked  int
}

func newKubelet(t *testing.T, w world) *fakeKubelet {
	k := &fakeKubelet{t: t, socket: filepath.Join(w.dir, "kubelet.sock")}
	k.says()
	return k
}

func (k *fakeKubelet) start() {
	k.t.Helper()
	listener, err := net.Listen("unix", k.socket)
	if err != nil {
		k.t.Fatal(err)
	}
	k.server = grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(k.server, k)
	go func() { _ = k.server.Serve(listener) }()
}

// stop takes the socket away, too.
func (k *fakeKubelet) stop() { k.server.Stop() }

func (k *fakeKubelet) List(ctx context.Context, _ *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	answer := k.answer
	k.asked++
	k.mu.Unlock()
	return answer(ctx), nil
}

// times is how often it was asked.
func (k *fakeKubelet) times() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked
}

func (k *fakeKubelet) will(answer func(context.Context) *podresources.ListPodResourcesResponse) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answer = answer
}

// says lists pods as the runtime of a world has them: "a=4,5" has two CPUs of its own, "b=" has none.
func (k *fakeKubelet) says(pods ...string) {
	list := &podresources.ListPodResourcesResponse{}
	for _, of := range pods {
		pod, cpus, _ := strings.Cut(of, "=")
		container := &podresources.ContainerResources{Name: "main"}
		for cpu := range strings.SplitSeq(cpus, ",") {
			var id int64
			if _, err := fmt.Sscan(cpu, &id); err == nil {
				container.CpuIds = append(container.CpuIds, id)
			}
		}
		list.PodResources = append(list.PodResources, &podresources.PodResources{
			Name: pod, Namespace: "shop", Containers: []*podresources.ContainerResources{container},
		})
	}
	k.will(func(context.Context) *podresources.ListPodResourcesResponse { return list })
}

// own are the pods of a list whose container has CPUs of its own.
func own(list []daemon.Container) string {
	var names []string
	for _, container := range list {
		if container.Exclusive {
			names = append(names, container.Pod)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// Holds cluster/kubelet.
func TestContainersWithCPUsOfTheirOwn(t *testing.T) {
	w := newWorld(t)
	w.add("pinned", nil, nil)
	w.start()
	defer w.stop()
	a := newAgent(t, w.socket)
	defer a.close()
	k := newKubelet(t, w)
	k.says("pinned=4,5")
	k.start()
	defer w.bridge()()
	told := func(names, alone string) {
		t.Helper()
		eventually(t, fmt.Sprintf("told of %q, of these on CPUs of their own %q", names, alone), func() bool {
			return a.names() == names && own(a.last()) == alone
		})
	}
	told("pinned", "pinned")
	// One that starts is never told without them.
	k.says("pinned=4,5", "second=6", "shared=")
	w.run("second", nil, nil)
	w.run("shared", nil, nil)
	told("pinned second shared", "pinned second")
	a.mu.Lock()
	for _, list := range a.lists {
		if strings.Contains(fmt.Sprint(list), " second ") && !strings.Contains(own(list), "second") {
			t.Errorf("%v", list)
		}
	}
	a.mu.Unlock()
	// The kubelet ends: what it said counts. One that takes the name of another is another.
	k.stop()
	w.run("third", nil, nil)
	told("pinned second shared third", "pinned second")
	w.end("second")
	told("pinned shared third", "pinned")
	w.run("second", nil, nil)
	told("pinned second shared third", "pinned")
	// It begins, and knows no pods at first.
	k.says()
	k.start()
	defer k.stop()
	before := k.times()
	w.run("fourth", nil, nil)
	told("fourth pinned second shared third", "pinned")
	if k.times() == before {
		t.Error("it was not asked")
	}
	k.says("pinned=", "second=", "shared=", "third=1", "fourth=")
	w.end("fourth")
	told("pinned second shared third", "third")
}

// log is what is logged until the test ends.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func newLog(t *testing.T) *log {
	l := &log{}
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(l, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return l
}

func (l *log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

// count of lines with these words.
func (l *log) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), words)
}

// Neither a kubelet that is not there nor one that says nothing or too much holds up what is told.
// Holds cluster/runtime.
func TestAKubeletThatIsNotThereOrHostile(t *testing.T) {
	l, w := newLog(t), newWorld(t)
	w.start()
	defer w.stop()
	a := newAgent(t, w.socket)
	defer a.close()
	stop := w.bridge()
	runs := 0
	told := func(alone string) {
		t.Helper()
		runs++
		w.run(fmt.Sprintf("pod-%d", runs), nil, nil)
		eventually(t, fmt.Sprintf("pod-%d is told, on CPUs of their own: %q", runs, alone), func() bool {
			return len(a.last()) == runs && own(a.last()) == alone
		})
	}
	told("")
	told("")
	if lines := l.count("the kubelet"); lines != 1 {
		t.Errorf("%d lines on a kubelet that is not there", lines)
	}
	k := newKubelet(t, w)
	k.says("pod-1=1", "pod-1=1", "stranger=2", "../\x1b]0;=3", "=4")
	k.start()
	defer k.stop()
	told("pod-1")
	k.says("pod-2=2", strings.Repeat("x", 5<<20))
	told("pod-1")
	if l.count("larger than max") != 1 {
		t.Error("it is read whole")
	}
	k.will(func(ctx context.Context) *podresources.ListPodResourcesResponse {
		<-ctx.Done()
		return nil
	})
	told("pod-1")
	k.says("pod-5=1")
	told("pod-1 pod-5")
	// It answered, was silent, and answered again.
	stop()
	if lines := l.count("the kubelet"); lines != 4 {
		t.Errorf("%d lines", lines)
	}
}
