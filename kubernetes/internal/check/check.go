// Package check says which precondition of the bridge fails, and what to do.
package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"cotenant.dev/kubernetes/api/v1alpha1"
	"cotenant.dev/kubernetes/internal/daemon"
	"cotenant.dev/kubernetes/internal/kubelet"
)

var nodes = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}

// patience is the time for one of them.
const patience = 5 * time.Second

// Node is where the bridge is to run.
type Node struct {
	// CGroups is where the control groups are mounted.
	CGroups string
	// NRI, Kubelet and Daemon are the sockets.
	NRI, Kubelet, Daemon string
	// Name is empty where nothing is published.
	Name string
	// Client is nil without an API server; Err says why.
	Client dynamic.Interface
	Err    error
}

// step is a precondition: what was found, or why it fails, with what to do.
type step struct {
	name   string
	check  func(context.Context, Node) (string, error)
	remedy string
}

var steps = []step{
	{"control groups", groups, "Cotenant needs cgroup v2: boot with systemd.unified_cgroup_hierarchy=1, and mount /sys/fs/cgroup of the host"},
	{"container runtime", containers, "NRI is on in containerd 2.0 and CRI-O; in containerd 1.7 set disable = false in [plugins.\"io.containerd.nri.v1.nri\"]; mount /var/run/nri"},
	{"kubelet", resources, "mount /var/lib/kubelet/pod-resources, or give -kubelet \"\": then no container counts as one with CPUs of its own"},
	{"daemon", agent, "start cotenant daemon on this node, and share /run/cotenant with it"},
	{"API server", server, "kubectl apply -f kubernetes/deploy: it has the definitions and the rights; -node \"\" publishes nothing"},
}

// Run writes a line for each, and returns how many fail.
func Run(ctx context.Context, node Node, to io.Writer) int {
	failed := 0
	for _, step := range steps {
		within, cancel := context.WithTimeout(ctx, patience)
		found, err := step.check(within, node)
		cancel()
		if err == nil {
			fmt.Fprintf(to, "✓ %s: %s\n", step.name, found)
			continue
		}
		failed++
		fmt.Fprintf(to, "✗ %s: %v\n    %s\n", step.name, err, step.remedy)
	}
	return failed
}

func groups(_ context.Context, node Node) (string, error) {
	if _, err := os.Stat(node.CGroups + "/cgroup.controllers"); err != nil {
		return "", err
	}
	return "version 2", nil
}

// containers does not register a plugin: the runtime would tell the one that runs that it is to go.
func containers(ctx context.Context, node Node) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", node.NRI)
	if err != nil {
		return "", err
	}
	return "NRI answers at " + node.NRI, conn.Close()
}

func resources(ctx context.Context, node Node) (string, error) {
	if node.Kubelet == "" {
		return "not asked: -kubelet is empty", nil
	}
	count, err := kubelet.New(node.Kubelet).Count(ctx)
	return fmt.Sprintf("it lists %d containers", count), err
}

func agent(ctx context.Context, node Node) (string, error) {
	of, err := daemon.Client{Socket: node.Daemon}.Node(ctx)
	return fmt.Sprintf("cotenant %s, mode %s, %d containers", of.Version, of.Mode, len(of.Containers)), err
}

func server(ctx context.Context, node Node) (string, error) {
	if node.Name == "" {
		return "not asked: no node is named, nothing is published", nil
	}
	if node.Err != nil {
		return "", node.Err
	}
	if _, err := node.Client.Resource(nodes).Get(ctx, node.Name, metav1.GetOptions{}); err != nil {
		return "", err
	}
	// What the bridge may read of its own kinds are profiles. Where this one is not found, the kind is there; without the
	// definitions the answer names none.
	const nobody = "cotenant-check"
	_, err := node.Client.Resource(v1alpha1.WorkloadProfileResource).Namespace("default").Get(ctx, nobody, metav1.GetOptions{})
	var status apierrors.APIStatus
	if apierrors.IsNotFound(err) && errors.As(err, &status) {
		if details := status.Status().Details; details != nil && details.Name == nobody {
			err = nil
		}
	}
	return "it knows " + node.Name + " and the kinds of Cotenant", err
}
