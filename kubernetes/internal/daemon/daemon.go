// Package daemon speaks with cotenant daemon over its control socket: a request and an answer, a line of JSON each.
package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"time"

	"cotenant.dev/kubernetes/api/v1alpha1"
)

// Version of the protocol.
const Version = 1

// Socket is where a daemon of root listens.
const Socket = "/run/cotenant/control.sock"

const (
	// patience is the time for a request and its answer.
	patience = 5 * time.Second
	// longest is the length of an answer.
	longest = 8 << 20
	// listed is the length of all containers together: the daemon refuses a request of more than 4 MiB as a whole, and
	// would then know the containers of before for ever.
	listed = 4<<20 - 4<<10
)

// Container is one that runs on this node.
type Container struct {
	// CGroup is the path of its control group as in /proc/PID/cgroup of the host.
	CGroup    string            `json:"cgroup"`
	Namespace string            `json:"namespace"`
	Pod       string            `json:"pod"`
	Container string            `json:"container"`
	Workload  string            `json:"workload,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Class     string            `json:"class,omitempty"`
	Goal      string            `json:"goal,omitempty"`
	Metric    string            `json:"metric,omitempty"`
	// Exclusive says that it has CPUs of its own.
	Exclusive bool `json:"exclusive,omitempty"`
}

// Taken is what became of a list of containers.
type Taken struct {
	Taken int `json:"taken"`
	// Remarks say what was left out and why.
	Remarks []string `json:"remarks"`
}

// Node is how much the containers of this node are in each other's way.
type Node struct {
	Version      string   `json:"version"`
	Mode         string   `json:"mode"`
	AgeS         float64  `json:"age_s"`
	Shared       []Shared `json:"shared"`
	Containers   []Guest  `json:"containers"`
	Interference []Pair   `json:"interference"`
}

// Shared is something that containers share, in units as v1alpha1.Kind says.
type Shared struct {
	What     string  `json:"what"`
	Name     string  `json:"name"`
	Capacity float64 `json:"capacity"`
	// Use is nil where the node cannot count it.
	Use *float64 `json:"use"`
}

// Guest is a container that the daemon manages.
type Guest struct {
	Namespace string             `json:"namespace"`
	Pod       string             `json:"pod"`
	Container string             `json:"container"`
	Workload  string             `json:"workload"`
	Class     string             `json:"class"`
	Goal      *float64           `json:"goal"`
	Kept      *float64           `json:"kept"`
	Use       map[string]float64 `json:"use"`
}

// Name is what the daemon calls it.
func (g Guest) Name() string {
	return g.Namespace + "/" + g.Pod + "/" + g.Container
}

// Pair is published as the daemon says it.
type Pair = v1alpha1.Pair

// Client asks the daemon at a socket.
type Client struct {
	Socket string
}

// Containers tells the daemon which containers there are, and that there are no others.
func (c Client) Containers(ctx context.Context, containers []Container) (Taken, error) {
	lines, remarks, err := fit(containers)
	if err != nil {
		return Taken{}, err
	}
	// The daemon takes a long line only if it begins like this.
	request := struct {
		Version    int               `json:"version"`
		Verb       string            `json:"verb"`
		Containers []json.RawMessage `json:"containers"`
	}{Version, "containers", lines}
	var taken Taken
	err = c.ask(ctx, request, &taken)
	taken.Remarks = append(remarks, taken.Remarks...)
	return taken, err
}

// fit is the list as the daemon takes it. Where all are too long together each has the same share, so that no pod can
// take room from others: labels beyond it are left out, the first ones by name stay, and so is a container that is too
// long without any.
func fit(containers []Container) (lines []json.RawMessage, remarks []string, err error) {
	lines = make([]json.RawMessage, len(containers))
	total := 0
	for i, container := range containers {
		if lines[i], err = json.Marshal(container); err != nil {
			return nil, nil, err
		}
		total += len(lines[i]) + 1
	}
	if total <= listed {
		return lines, nil, nil
	}
	share, cut := listed/len(containers), 0
	kept := lines[:0]
	for i, container := range containers {
		line := lines[i]
		if len(line) >= share {
			cut++
			labels := container.Labels
			container.Labels = map[string]string{}
			if line, err = json.Marshal(container); err != nil {
				return nil, nil, err
			}
			const empty, punctuation = len(`,"labels":{}`), len(`"":"",`)
			left := share - len(line) - empty
			for _, key := range slices.Sorted(maps.Keys(labels)) {
				if left -= len(key) + len(labels[key]) + punctuation; left <= 0 {
					break
				}
				container.Labels[key] = labels[key]
			}
			if line, err = json.Marshal(container); err != nil {
				return nil, nil, err
			}
		}
		if len(line) < share {
			kept = append(kept, line)
		}
	}
	remarks = []string{fmt.Sprintf("%d containers are longer together than %d bytes; %d of them lost labels", len(containers), listed, cut)}
	if gone := len(containers) - len(kept); gone > 0 {
		remarks = append(remarks, fmt.Sprintf("%d of them are too long without labels and are left out", gone))
	}
	return kept, remarks, nil
}

// Node asks how the node stands.
func (c Client) Node(ctx context.Context) (Node, error) {
	request := struct {
		Version int    `json:"version"`
		Verb    string `json:"verb"`
	}{Version, "node"}
	var node Node
	err := c.ask(ctx, request, &node)
	return node, err
}

func (c Client) ask(ctx context.Context, request, answer any) error {
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
	if err != nil {
		return fmt.Errorf("no daemon answers: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	// A daemon that refuses a request may close before it is written whole, and answers all the same.
	_, wrote := conn.Write(append(line, '\n'))
	said, err := bufio.NewReader(io.LimitReader(conn, longest)).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the daemon does not answer: %w", errors.Join(wrote, err))
	}
	var envelope struct {
		Ok    json.RawMessage `json:"ok"`
		Error *string         `json:"error"`
	}
	if err := json.Unmarshal(said, &envelope); err != nil {
		return fmt.Errorf("the daemon's answer cannot be read: %w", err)
	}
	if envelope.Error != nil {
		return fmt.Errorf("the daemon refuses: %q", *envelope.Error)
	}
	if err := json.Unmarshal(envelope.Ok, answer); err != nil {
		return fmt.Errorf("the daemon's answer cannot be read: %w", err)
	}
	return nil
}
