package cluster

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How many pods a second the scheduler binds with our plugin and without: COTENANT_PODS of them, on 1,000 nodes.
func TestRate(t *testing.T) {
	c, _ := start(t)
	pods := 2_000
	if text := os.Getenv("COTENANT_PODS"); text != "" {
		if _, err := fmt.Sscan(text, &pods); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	var done sync.WaitGroup
	for worker := range 20 {
		done.Go(func() {
			for i := worker; i < 1000; i += 20 {
				name := fmt.Sprintf("node-%03d", i)
				c.node(name)
				c.measure(name, float64(i%10))
			}
		})
	}
	done.Wait()
	c.profile("web", 0.05, 0.3)
	t.Logf("1,000 nodes after %v", time.Since(begin).Round(time.Millisecond))
	rates := map[string]float64{}
	for _, scheduler := range []string{stock, ours, ours, stock} {
		begin := time.Now()
		for worker := range 20 {
			done.Go(func() {
				for i := worker; i < pods/2; i += 20 {
					c.pod(fmt.Sprintf("%s-%d-%d", scheduler, begin.UnixMilli(), i), scheduler, map[string]string{"cotenant.dev/profile": "web"})
				}
			})
		}
		done.Wait()
		for left := -1; left != 0; time.Sleep(100 * time.Millisecond) {
			list, err := c.client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{FieldSelector: "spec.nodeName=", ResourceVersion: "0"})
			if err != nil {
				t.Fatal(err)
			}
			left = len(list.Items)
			if time.Since(begin) > 20*time.Minute {
				t.Fatalf("%s: %d pods are left", scheduler, left)
			}
		}
		rate := float64(pods/2) / time.Since(begin).Seconds()
		rates[scheduler] += rate / 2
		t.Logf("%s: %.1f pods/s", scheduler, rate)
	}
	t.Logf("%.1f pods/s with the plugin, %.1f without: %.0f %%", rates[ours], rates[stock], 100*rates[ours]/rates[stock])
}
