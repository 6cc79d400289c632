// Package kubelet asks the kubelet which containers have CPUs of their own.
package kubelet

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"cotenant.dev/kubernetes/internal/daemon"
)

// Socket is where a kubelet answers.
const Socket = "/var/lib/kubelet/pod-resources/kubelet.sock"

const (
	// patience is the time for a question and its answer: the daemon gets the list of containers only then.
	patience = time.Second
	// longest is the length of an answer: 2 KiB for each container that is followed.
	longest = 4 << 20
)

// Kubelet is asked at a socket, and what it said is remembered.
type Kubelet struct {
	socket string
	silent bool
	// own has the control groups with CPUs of their own.
	own map[string]bool
}

// New asks nothing yet, and nothing ever where there is no socket.
func New(socket string) *Kubelet {
	return &Kubelet{socket: socket}
}

// Mark says of each container whether it has CPUs of its own. Of one that the kubelet does not speak of that is what it
// said before: after its start it lists no pods for a while.
func (k *Kubelet) Mark(ctx context.Context, containers []daemon.Container) {
	if k.socket == "" {
		return
	}
	said, err := k.ask(ctx)
	if silent := err != nil; silent != k.silent && ctx.Err() == nil {
		if k.silent = silent; silent {
			slog.Info("the kubelet does not say which containers have CPUs of their own; what it said before counts", "why", err)
		} else {
			slog.Info("the kubelet says which containers have CPUs of their own")
		}
	}
	own := map[string]bool{}
	for i := range containers {
		of := &containers[i]
		exclusive, known := said[name{of.Namespace, of.Pod, of.Container}]
		if !known {
			exclusive = k.own[of.CGroup]
		}
		if of.Exclusive = exclusive; exclusive {
			own[of.CGroup] = true
		}
	}
	k.own = own
}

// Count asks how many containers the kubelet lists.
func (k *Kubelet) Count(ctx context.Context) (int, error) {
	said, err := k.ask(ctx)
	return len(said), err
}

type name struct{ namespace, pod, container string }

// ask lists containers. Those have CPUs to which the static CPU manager has assigned some: none by policy none, none of
// a pod that is not Guaranteed or asks for a fraction of a CPU. Init containers are not listed, but sidecars are.
func (k *Kubelet) ask(ctx context.Context) (map[name]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// One that is kept would wait up to two minutes before it looks for a new kubelet.
	conn, err := grpc.NewClient("unix:"+k.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(longest)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	list, err := podresources.NewPodResourcesListerClient(conn).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	said := map[name]bool{}
	for _, pod := range list.GetPodResources() {
		for _, container := range pod.GetContainers() {
			said[name{pod.GetNamespace(), pod.GetName(), container.GetName()}] = len(container.GetCpuIds()) > 0
		}
	}
	return said, nil
}
