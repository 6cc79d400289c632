// Package bridge keeps parties together that come and go as they like: the container runtime, the kubelet, the daemon,
// and the API server.
package bridge

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/stub"

	"cotenant.dev/kubernetes/internal/daemon"
	"cotenant.dev/kubernetes/internal/identity"
	"cotenant.dev/kubernetes/internal/kubelet"
)

const (
	// plugin and index are how the runtime knows us. It asks us late: what other plugins change comes first.
	plugin = "cotenant"
	index  = "90"

	// period is how often the list is sent without a change: the daemon may have been restarted.
	period = 10 * time.Second
	// together is how long changes are waited for, so that those of one moment are sent together.
	together = 100 * time.Millisecond
	// soonest and latest are the waits between two tries.
	soonest = 100 * time.Millisecond
	latest  = 5 * time.Second
)

// Publish hands on what the daemon says of its node.
type Publish func(context.Context, daemon.Node) error

// Bridge is between them.
type Bridge struct {
	nri     string
	kubelet *kubelet.Kubelet
	daemon  daemon.Client
	publish Publish
	store   *identity.Store
}

// New makes a bridge from the runtime's NRI socket and the kubelet to the daemon; publish may be nil.
func New(nri string, kubelet *kubelet.Kubelet, daemon daemon.Client, publish Publish) *Bridge {
	return &Bridge{nri: nri, kubelet: kubelet, daemon: daemon, publish: publish, store: identity.New()}
}

// Run goes on until the context ends.
func (b *Bridge) Run(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.follow(ctx)
	}()
	if b.publish != nil {
		reported := make(chan struct{})
		go func() {
			defer close(reported)
			b.report(ctx)
		}()
		defer func() { <-reported }()
	}
	b.tell(ctx)
	<-done
}

// follow is connected to the runtime whenever there is one.
func (b *Bridge) follow(ctx context.Context) {
	wait := soonest
	for ctx.Err() == nil {
		closed := make(chan struct{}, 1)
		began := time.Now()
		err := b.connect(ctx, closed)
		switch {
		case ctx.Err() != nil:
			return // this process ends
		case err == nil:
			slog.Info("the container runtime has gone; connecting again")
		case wait == soonest:
			slog.Warn("no container runtime answers; trying again", "socket", b.nri, "why", err)
		}
		if time.Since(began) > latest {
			wait = soonest
		}
		sleep(ctx, wait)
		wait = min(2*wait, latest)
	}
}

// connect returns when the runtime has gone, or with an error where it did not take us.
func (b *Bridge) connect(ctx context.Context, closed chan struct{}) error {
	runtime, err := stub.New(b.store, stub.WithPluginName(plugin), stub.WithPluginIdx(index), stub.WithSocketPath(b.nri),
		stub.WithOnClose(func() {
			select {
			case closed <- struct{}{}:
			default:
			}
		}))
	if err != nil {
		return err
	}
	if err := runtime.Start(ctx); err != nil {
		return err
	}
	slog.Info("connected to the container runtime", "nri", runtime.RuntimeNRIVersion())
	select {
	case <-closed:
	case <-ctx.Done():
	}
	runtime.Stop()
	return nil
}

// tell keeps the daemon's list as the runtime's is.
func (b *Bridge) tell(ctx context.Context) {
	wait, failed := period, false
	remarked := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.store.Changed():
			sleep(ctx, together)
		case <-time.After(wait):
		}
		containers, known := b.store.Containers()
		if !known {
			continue
		}
		b.kubelet.Mark(ctx, containers)
		taken, err := b.daemon.Containers(ctx, containers)
		if err != nil {
			if !failed && ctx.Err() == nil {
				slog.Warn("the daemon does not take the list of containers; trying again", "why", err)
			}
			if wait = min(2*wait, latest); !failed {
				wait = soonest
			}
			failed = true
			continue
		}
		if failed {
			slog.Info("the daemon takes the list of containers again", "containers", taken.Taken)
		}
		wait, failed = period, false
		for remark, count := range b.store.TakeRemarks() {
			slog.Warn("left out: "+remark, "count", count)
		}
		// The same list gets the same remarks each time.
		if said := strings.Join(taken.Remarks, "; "); said != remarked {
			if remarked = said; said != "" {
				slog.Warn("something is left out", "remarks", said)
			}
		}
	}
}

// report publishes how the node stands.
func (b *Bridge) report(ctx context.Context) {
	failed := false
	for ctx.Err() == nil {
		node, err := b.daemon.Node(ctx)
		if err == nil {
			err = b.publish(ctx, node)
		}
		if err != nil && !failed && ctx.Err() == nil {
			slog.Warn("the state of this node is not published; trying again", "why", err)
		} else if err == nil && failed {
			slog.Info("the state of this node is published again")
		}
		failed = err != nil
		sleep(ctx, period)
	}
}

func sleep(ctx context.Context, length time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
}

var _ interface {
	stub.SynchronizeInterface
	stub.RunPodInterface
	stub.RemovePodInterface
	stub.StartContainerInterface
	stub.StopContainerInterface
	stub.RemoveContainerInterface
} = (*identity.Store)(nil)
