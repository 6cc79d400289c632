package identity

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
)

// A large node with 20 long labels for each pod: what of NRI's 2 s is ours.
func BenchmarkSynchronize(b *testing.B) {
	var pods []*api.PodSandbox
	var containers []*api.Container
	for i := range 500 {
		labels := map[string]string{}
		for j := range 20 {
			labels[fmt.Sprintf("example.org/label-%d", j)] = strings.Repeat("v", 60)
		}
		id := fmt.Sprintf("pod-%d", i)
		pods = append(pods, &api.PodSandbox{Id: id, Name: id, Namespace: "shop", Labels: labels})
		containers = append(containers, &api.Container{Id: id, PodSandboxId: id, Name: "main",
			Linux: &api.LinuxContainer{CgroupsPath: "kubepods-pod" + fmt.Sprint(i) + ".slice:cri-containerd:x"}})
	}
	store := New()
	for b.Loop() {
		if _, err := store.Synchronize(context.Background(), pods, containers); err != nil {
			b.Fatal(err)
		}
	}
	if list, known := store.Containers(); !known || len(list) != 500 {
		b.Fatalf("%d", len(list))
	}
}
