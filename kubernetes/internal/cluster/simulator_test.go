package cluster

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cotenant.dev/kubernetes/internal/daemon"
)

// machine is the example of docs/reference/mix.md.
const (
	machine = `name = "eight-cores"
cores = 8
clock_ghz = 2.0
llc_bytes = 20971520
llc_ns = 25
memory_ns = 82
memory_gbs = 60
inclusive = true
`
	cores = 8
)

// spec are the programs of SPEC CPU2006 as in workloads/spec-cpu2006.toml.
var spec = strings.Fields(`GemsFDTD06 astar06 bwaves06 bzip206 cactusADM06 calculix06 dealII06 gamess06 gcc06 gobmk06
	gromacs06 h264ref06 hmmer06 lbm06 leslie3d06 libquantum06 mcf06 milc06 namd06 omnetpp06 perlbench06 povray06 sjeng06
	soplex06 sphinx306 tonto06 wrf06 xalancbmk06 zeusmp06`)

// simulator is cotenant-lab cluster-sim: nodes whose pods slow each other down, in simulated time.
type simulator struct {
	t    *testing.T
	ask  *json.Encoder
	said *bufio.Reader
}

func simulate(t *testing.T) *simulator {
	t.Helper()
	file := filepath.Join(t.TempDir(), "machine.toml")
	if err := os.WriteFile(file, []byte(machine), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(os.Getenv("COTENANT_LAB"), "cluster-sim", "--machine", file)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = command.Wait()
	})
	return &simulator{t: t, ask: json.NewEncoder(in), said: bufio.NewReader(out)}
}

// request gets the answer to one. Tests in other goroutines than the first may not end a test: it panics.
func request[T any](s *simulator, fields map[string]any) (answer T) {
	if err := s.ask.Encode(fields); err != nil {
		panic(err)
	}
	line, err := s.said.ReadBytes('\n')
	if err != nil {
		panic(err)
	}
	var envelope struct {
		Ok    *T      `json:"ok"`
		Error *string `json:"error"`
	}
	if err := json.Unmarshal(line, &envelope); err != nil {
		panic(err)
	}
	if envelope.Error != nil {
		panic(fmt.Sprintf("%v: %s", fields, *envelope.Error))
	}
	return *envelope.Ok
}

func (s *simulator) start(node, pod, program string, workS float64) {
	request[any](s, map[string]any{"verb": "start", "node": node, "pod": pod, "program": program, "work_s": workS})
}

func (s *simulator) stop(pod string) {
	request[any](s, map[string]any{"verb": "stop", "pod": pod})
}

type advanced struct {
	AtS   float64 `json:"at_s"`
	Ended []struct {
		Pod      string  `json:"pod"`
		Node     string  `json:"node"`
		Slowdown float64 `json:"slowdown"`
	} `json:"ended"`
}

// advance goes on to a moment, or to the first end of a pod before it.
func (s *simulator) advance(toS float64) advanced {
	return request[advanced](s, map[string]any{"verb": "advance", "to_s": toS})
}

// simulated is a node with what no daemon knows.
type simulated struct {
	daemon.Node
	truth []truth
}

type truth struct {
	Pod      string  `json:"pod"`
	Slowdown float64 `json:"slowdown"`
	DoneS    float64 `json:"done_s"`
}

func (s *simulator) node(name string) simulated {
	raw := request[json.RawMessage](s, map[string]any{"verb": "node", "node": name})
	var node simulated
	var hidden struct {
		Containers []truth `json:"containers"`
	}
	if json.Unmarshal(raw, &node.Node) != nil || json.Unmarshal(raw, &hidden) != nil {
		panic("a node cannot be read")
	}
	node.truth = hidden.Containers
	return node
}

// measured is a profile: bytes per second that a program misses, and what it loses for each unit of pressure.
type measured struct {
	use, sensitivity, spread float64
	// loses is the mean loss beside others.
	loses float64
}

// characterize measures each program beside others drawn at random.
func characterize(s *simulator, programs []string, random *rand.Rand) map[string]measured {
	const mixes = 12
	found := map[string]measured{}
	for _, program := range programs {
		var use, pressures, losses []float64
		for range mixes {
			pods := []string{"self"}
			s.start("bench", "self", program, 1e6)
			for i := range 1 + random.IntN(cores-1) {
				pods = append(pods, fmt.Sprint("other-", i))
				s.start("bench", pods[i+1], programs[random.IntN(len(programs))], 1e6)
			}
			node := s.node("bench")
			for i, guest := range node.Containers {
				if guest.Pod != "self" {
					continue
				}
				memory := node.Shared[slices.IndexFunc(node.Shared, func(s daemon.Shared) bool { return s.What == "memory" })]
				use = append(use, guest.Use["memory"])
				pressures = append(pressures, (*memory.Use-guest.Use["memory"])/memory.Capacity)
				losses = append(losses, 1-1/node.truth[i].Slowdown)
			}
			for _, pod := range pods {
				s.stop(pod)
			}
		}
		// The slope through nothing, and how far single mixes lie from it: at the mean pressure.
		var top, bottom, squares float64
		for i, pressure := range pressures {
			top, bottom = top+losses[i]*pressure, bottom+pressure*pressure
		}
		slope := top / math.Max(bottom, 1e-9)
		for i, pressure := range pressures {
			squares += math.Pow(losses[i]-slope*pressure, 2)
		}
		found[program] = measured{
			use: mean(use), sensitivity: slope, loses: mean(losses),
			spread: math.Sqrt(squares/(mixes-1)) / math.Max(mean(pressures), 1e-3),
		}
	}
	return found
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	return sum / float64(len(values))
}
