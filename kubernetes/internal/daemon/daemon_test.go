package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// answering is a socket at which each line gets this answer, and then the connection is closed.
func answering(t *testing.T, answer string) Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if _, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
				_, _ = conn.Write([]byte(answer))
			}
			conn.Close()
		}
	}()
	return Client{socket}
}

// Holds cluster/runtime.
func TestAnswers(t *testing.T) {
	ctx := context.Background()
	node, err := answering(t, `{"ok":{"version":"1","mode":"observe","age_s":0.5,"new":1,"containers":[{"pod":"a","use":{"cores":2}}]}}`+"\n").Node(ctx)
	if err != nil || node.AgeS != 0.5 || node.Containers[0].Use["cores"] != 2 {
		t.Errorf("%v, %v", node, err)
	}
	for answer, want := range map[string]string{
		"":                            "does not answer",
		`{"ok":{"version":"1"`:        "does not answer",
		"{\"error\":\"\x1b[2J\"}\n":   "cannot be read",
		"{\"error\":\"no\\u001b\"}\n": `refuses: "no\x1b"`,
		"{\"ok\":\"paused\"}\n":       "cannot be read",
		"[]\n":                        "cannot be read",
		strings.Repeat("x", longest):  "does not answer",
	} {
		if _, err := answering(t, answer).Node(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", answer, err, want)
		}
	}
	if _, err := (Client{"/nowhere"}).Containers(ctx, nil); err == nil || !strings.Contains(err.Error(), "no daemon answers") {
		t.Error(err)
	}
}

// All that the daemon allows of each container is more than it takes of all together.
// Holds cluster/containers.
func TestALongListFits(t *testing.T) {
	long := strings.Repeat("n", 253)
	labels := map[string]string{}
	for i := range 64 {
		labels[fmt.Sprintf("%s-%02d", strings.Repeat("k", 314), i)] = strings.Repeat("v", 63)
	}
	hog := Container{CGroup: "/" + strings.Repeat("c", 1023), Namespace: long, Pod: long, Container: long, Labels: labels}
	small := Container{CGroup: "/a/b", Namespace: "shop", Pod: "db-0", Container: "main", Labels: map[string]string{"app": "db"}}
	for _, c := range []struct{ hogs, kept, labels, remarks int }{
		{10, 10, 64, 0},   // they fit
		{200, 200, 49, 1}, // (4 MiB / 201 - 1.8 KiB) / 386
		{2040, 2040, 0, 1},
	} {
		list := []Container{small}
		for range c.hogs {
			list = append(list, hog)
		}
		lines, remarks, err := fit(list)
		if err != nil || len(lines) != c.kept+1 || len(remarks) != c.remarks {
			t.Fatalf("%d: %d lines, %v, %v", c.hogs, len(lines), remarks, err)
		}
		total := 0
		for i, line := range lines {
			total += len(line) + 1
			var read Container
			if err := json.Unmarshal(line, &read); err != nil {
				t.Fatal(err)
			}
			if want := c.labels; i > 0 && len(read.Labels) != want || i == 0 && len(read.Labels) != 1 {
				t.Errorf("%d: %s has %d labels", c.hogs, read.Pod, len(read.Labels))
			}
		}
		if total > listed {
			t.Errorf("%d: %d bytes", c.hogs, total)
		}
	}
	// Without labels, too, one is too long.
	vast := hog
	vast.Metric = strings.Repeat("<", 256) // six bytes each in JSON
	list := []Container{small}
	for range 2000 {
		list = append(list, vast)
	}
	if lines, remarks, err := fit(list); err != nil || len(lines) != 1 || len(remarks) != 2 {
		t.Errorf("%d lines, %v, %v", len(lines), remarks, err)
	}
}

// The protocol as both sides have it: needs cotenant, which COTENANT_BINARY names.
// Holds cluster/runtime.
func TestTheRealDaemon(t *testing.T) {
	binary := os.Getenv("COTENANT_BINARY")
	if binary == "" {
		t.Skip("COTENANT_BINARY names no cotenant to speak with")
	}
	dir, ctx := t.TempDir(), context.Background()
	config, client := filepath.Join(dir, "c.toml"), Client{filepath.Join(dir, "s")}
	if err := os.WriteFile(config, []byte("[[rule]]\nname = \"containers\"\nmatch = { namespace = \"*\" }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command(binary, "daemon", "--config", config, "--socket", client.Socket)
	daemon.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_RUNTIME_DIR="+dir, "XDG_STATE_HOME="+dir)
	daemon.Stderr = os.Stderr
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = daemon.Process.Signal(os.Interrupt)
		_ = daemon.Wait()
	}()
	var containers []Container
	for i := range 500 {
		name := "pod-" + strings.Repeat("x", i%50) + string(rune('a'+i%26))
		containers = append(containers, Container{
			CGroup: "/kubepods.slice/" + strings.Repeat("y", i) + "/c.scope", Namespace: "shop", Pod: name, Container: "main",
			Workload: "web", Labels: map[string]string{"app": "web"}, Class: "high", Goal: "90%", Metric: "ipc",
		})
	}
	containers[1].Goal = "120%"
	containers[2].Exclusive = true
	var taken Taken
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if taken, err = client.Containers(ctx, containers); err == nil {
			break
		}
	}
	// The first one has no path, and the goal of the second is none.
	if err != nil || taken.Taken != 499 || len(taken.Remarks) != 2 {
		t.Fatalf("%v, %v", taken, err)
	}
	var node Node
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if node, err = client.Node(ctx); err == nil && node.Shared[0].Use != nil {
			break
		}
	}
	if err != nil || node.Mode != "observe" || node.Shared[0].What != "cores" || node.Shared[0].Capacity < 1 || len(node.Containers) > 0 {
		t.Errorf("%v, %v", node, err)
	}
}
