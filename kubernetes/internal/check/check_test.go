package check

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"cotenant.dev/kubernetes/api/v1alpha1"
)

// listening is a socket that closes each connection after this answer.
func listening(t *testing.T, answer string) string {
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
			if answer != "" {
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = conn.Write([]byte(answer))
			}
			conn.Close()
		}
	}()
	return socket
}

// Holds cluster/runtime.
func TestThePreconditionThatFailsIsNamed(t *testing.T) {
	groups := t.TempDir()
	if err := os.WriteFile(groups+"/cgroup.controllers", []byte("cpu\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	of := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n1"}}}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{v1alpha1.WorkloadProfileResource: "WorkloadProfileList", nodes: "NodeList"}, of)
	good := Node{
		CGroups: groups,
		NRI:     listening(t, ""),
		Daemon:  listening(t, `{"ok":{"version":"1.2","mode":"observe","containers":[]}}`+"\n"),
		Name:    "n1",
		Client:  client,
	}
	for name, c := range map[string]struct {
		change func(*Node)
		failed string
		remedy string
	}{
		"all":        {func(*Node) {}, "", ""},
		"groups":     {func(n *Node) { n.CGroups = "/nowhere" }, "control groups", "cgroup v2"},
		"runtime":    {func(n *Node) { n.NRI = "/nowhere/nri.sock" }, "container runtime", "containerd 1.7"},
		"kubelet":    {func(n *Node) { n.Kubelet = "/nowhere/kubelet.sock" }, "kubelet", "pod-resources"},
		"daemon":     {func(n *Node) { n.Daemon = "/nowhere/control.sock" }, "daemon", "start cotenant daemon"},
		"a node":     {func(n *Node) { n.Name = "n2" }, "API server", "kubectl apply"},
		"API server": {func(n *Node) { n.Err = errors.New("no configuration") }, "API server", "kubectl apply"},
	} {
		node := good
		c.change(&node)
		var said strings.Builder
		failed := Run(context.Background(), node, &said)
		lines := strings.Split(said.String(), "\n")
		var wrong []string
		for _, line := range lines {
			if strings.HasPrefix(line, "✗") {
				wrong = append(wrong, line)
			}
		}
		if c.failed == "" {
			if failed != 0 || strings.Count(said.String(), "✓") != len(steps) {
				t.Errorf("%s: %s", name, said.String())
			}
			continue
		}
		if failed != 1 || len(wrong) != 1 || !strings.HasPrefix(wrong[0], "✗ "+c.failed+": ") || !strings.Contains(said.String(), c.remedy) {
			t.Errorf("%s: %s", name, said.String())
		}
	}
}
