package daemon

import (
	"bufio"
	"context"
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

// The protocol as both sides have it: needs cotenant, which COTENANT_BINARY names.
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
