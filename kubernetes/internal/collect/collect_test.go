package collect

import (
	"context"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"cotenant.dev/kubernetes/api/v1alpha1"
)

// Holds cluster/objects.
func TestProfilesThatNobodyUsesAreCollected(t *testing.T) {
	now, day := time.Unix(1_800_000_000, 0), 24*time.Hour
	at := func(days int) string { return now.Add(-time.Duration(days) * day).UTC().Format(time.RFC3339) }
	profile := func(name string, made int, seen ...int) *unstructured.Unstructured {
		var nodes []any
		for _, days := range seen {
			nodes = append(nodes, map[string]any{"node": "n", "observedAt": at(days)})
		}
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cotenant.dev/v1alpha1", "kind": "WorkloadProfile",
			"metadata": map[string]any{"name": name, "namespace": "shop", "creationTimestamp": at(made)},
			"status":   map[string]any{"nodes": nodes},
		}}
	}
	written := profile("written", 90, 90)
	written.Object["spec"] = map[string]any{"resources": []any{map[string]any{"kind": "cores"}}}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{v1alpha1.WorkloadProfileResource: "WorkloadProfileList"},
		profile("used", 90, 40, 1), profile("unused", 90, 40, 31), profile("new", 1), profile("never", 31), written)
	removed, err := Collect(context.Background(), client, 30*day, now)
	if err != nil || removed != 2 {
		t.Errorf("%d removed, %v", removed, err)
	}
	list, err := client.Resource(v1alpha1.WorkloadProfileResource).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, object := range list.Items {
		left = append(left, object.GetName())
	}
	slices.Sort(left)
	if want := []string{"new", "used", "written"}; !slices.Equal(left, want) {
		t.Errorf("left: %v", left)
	}
}
