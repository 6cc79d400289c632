// Command cotenant-node tells cotenant daemon which control group is which container, and the cluster how its node
// stands.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"cotenant.dev/kubernetes/internal/bridge"
	checks "cotenant.dev/kubernetes/internal/check"
	"cotenant.dev/kubernetes/internal/collect"
	"cotenant.dev/kubernetes/internal/daemon"
	"cotenant.dev/kubernetes/internal/gate"
	"cotenant.dev/kubernetes/internal/kubelet"
	"cotenant.dev/kubernetes/internal/publish"
)

func main() {
	nri := flag.String("nri", "/var/run/nri/nri.sock", "the container runtime's NRI `socket`")
	resources := flag.String("kubelet", kubelet.Socket, "the kubelet's pod resources `socket`; empty: no container has CPUs of its own")
	socket := flag.String("socket", daemon.Socket, "the control `socket` of cotenant daemon")
	node := flag.String("node", os.Getenv("NODE_NAME"), "the `name` of this node; empty: nothing is published [default: $NODE_NAME]")
	address := flag.String("metrics", "", "the `address` at which the daemon's metrics are served to clients that the API server lets get /metrics, as :9843; empty: nowhere")
	listen := flag.String("daemon", "127.0.0.1:9844", "the `address` of the daemon's metrics: its listen")
	unused := flag.Duration("collect", 0, "remove the profiles that no node has seen used for so long, and end")
	check := flag.Bool("check", false, "say which precondition fails on this node, and end; the exit code is 1 then")
	kubeconfig := flag.String("kubeconfig", "", "a kubeconfig `file`; without one, the account of the pod")
	flag.Parse()
	if flag.NArg() > 0 {
		fail(fmt.Errorf("'%s' is not an option; see -help", flag.Arg(0)))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var client dynamic.Interface
	var unreachable error
	if *node != "" || *unused > 0 {
		client, unreachable = connect(*kubeconfig)
	}
	if *check {
		on := checks.Node{CGroups: "/sys/fs/cgroup", NRI: *nri, Kubelet: *resources, Daemon: *socket, Name: *node, Client: client, Err: unreachable}
		if checks.Run(ctx, on, os.Stdout) > 0 {
			os.Exit(1)
		}
		return
	}
	if unreachable != nil {
		fail(unreachable)
	}
	if *unused > 0 {
		removed, err := collect.Collect(ctx, client, *unused, time.Now())
		slog.Info("unused profiles are collected", "removed", removed)
		if err != nil {
			fail(err)
		}
		return
	}
	var publisher bridge.Publish
	if *node != "" {
		publisher = publish.New(client, *node).Publish
	} else {
		slog.Info("nothing is published: neither -node nor NODE_NAME names this node")
	}
	if *address != "" {
		go func() {
			for ctx.Err() == nil {
				why := gate.New(client, *listen).Run(ctx, *address)
				select {
				case <-ctx.Done():
				case <-time.After(5 * time.Second):
					slog.Error("metrics are not served; it is tried again", "why", why)
				}
			}
		}()
	}
	slog.Info("cotenant-node begins", "nri", *nri, "socket", *socket, "node", *node)
	bridge.New(*nri, kubelet.New(*resources), daemon.Client{Socket: *socket}, publisher).Run(ctx)
}

func connect(kubeconfig string) (dynamic.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("the API server cannot be found: %w; give -kubeconfig, or -node \"\" to publish nothing", err)
	}
	// A connection that hangs would hold up all that is published.
	config.Timeout = 10 * time.Second
	return dynamic.NewForConfig(rest.AddUserAgent(config, "cotenant-node"))
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "cotenant-node: %v\n", err)
	os.Exit(2)
}
