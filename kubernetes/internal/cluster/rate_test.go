package cluster

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How many pods a second the scheduler binds with our plugin and without: COTENANT_PODS of them in all, on 1,000 nodes.
// Only who wants to know that runs it: rates depend on what else the machine does, less so the ratio of paired runs.
func TestRate(t *testing.T) {
	pods, err := strconv.Atoi(os.Getenv("COTENANT_PODS"))
	if err != nil || pods < 100 {
		t.Skip("COTENANT_PODS is not 100 or more")
	}
	c, scheduler := start(t)
	begin := time.Now()
	var done sync.WaitGroup
	nodes := func(do func(name string, used float64)) {
		var done sync.WaitGroup
		for worker := range 20 {
			done.Go(func() {
				for i := worker; i < 1000; i += 20 {
					do(fmt.Sprintf("node-%03d", i), float64(i%10))
				}
			})
		}
		done.Wait()
	}
	nodes(func(name string, used float64) {
		c.node(name)
		c.measure(name, used)
	})
	// As agents do: what is a minute old counts no more, and the plugin would have nothing to do.
	ended, agents := make(chan struct{}), sync.WaitGroup{}
	agents.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(20 * time.Second):
				nodes(c.measure)
			}
		}
	})
	defer agents.Wait()
	defer close(ended)
	c.profile("web", 0.05, 0.3)
	t.Logf("1,000 nodes after %v", time.Since(begin).Round(time.Millisecond))
	// A pair is one run of each; the order changes from pair to pair.
	const pairs = 8
	run := func(name string, pair int) (rate, cpu float64) {
		begin, before, count := time.Now(), scheduler.cpu(), pods/2/pairs
		for worker := range 20 {
			done.Go(func() {
				for i := worker; i < count; i += 20 {
					c.pod(fmt.Sprintf("%s-%d-%d", name, pair, i), name, map[string]string{"cotenant.dev/profile": "web"})
				}
			})
		}
		done.Wait()
		c.eventually(name+" has bound all", func() bool {
			list, err := c.client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{FieldSelector: "spec.nodeName=", ResourceVersion: "0"})
			return err == nil && len(list.Items) == 0
		})
		rate, cpu = float64(count)/time.Since(begin).Seconds(), (scheduler.cpu()-before).Seconds()/float64(count)
		t.Logf("%s: %.1f pods/s, %.2f ms of the scheduler's CPU time each", name, rate, 1e3*cpu)
		return rate, cpu
	}
	// The first pods fill caches.
	for _, name := range []string{ours, stock} {
		run(name, -1)
	}
	var rates, times []float64
	for pair := range pairs {
		order := []string{stock, ours}
		if pair%2 == 1 {
			slices.Reverse(order)
		}
		rate, cpu := map[string]float64{}, map[string]float64{}
		for _, name := range order {
			rate[name], cpu[name] = run(name, pair)
		}
		rates, times = append(rates, rate[ours]/rate[stock]), append(times, cpu[ours]/cpu[stock])
	}
	for _, profile := range []string{ours, stock} {
		// Where the plugin works: in Score it does nothing.
		for _, point := range []string{"Filter", "PreScore"} {
			var at [2]float64
			for i, q := range []float64{0.5, 0.99} {
				if at[i], err = c.quantile(insecure(), q, `scheduler_framework_extension_point_duration_seconds_bucket`, `extension_point="`+point+`"`, `profile="`+profile+`"`); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%s: %s takes half of the pods %.2g ms at most, 99 of 100 %.2g ms, all plugins together, on a clock", profile, point, 1e3*at[0], 1e3*at[1])
		}
	}
	slices.Sort(rates)
	slices.Sort(times)
	ratio := (rates[pairs/2-1] + rates[pairs/2]) / 2
	t.Logf("with the plugin %.0f %% of the stock rate (pairs: %.2f), %.2f times its CPU time (pairs: %.2f)", 100*ratio, rates, (times[pairs/2-1]+times[pairs/2])/2, times)
}

// cpu is the CPU time of a program up to now.
func (p *program) cpu() time.Duration {
	p.c.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	if err != nil {
		p.c.t.Fatal(err)
	}
	// After the name in parentheses: state is field 3, utime and stime are 14 and 15, in hundredths of a second.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// quantile of a histogram of the scheduler's: the upper end of the bucket that it lies in.
func (c *cluster) quantile(client *http.Client, q float64, name string, labels ...string) (float64, error) {
	lines, err := c.metric(client, func(line string) bool {
		return strings.HasPrefix(line, name+"{") && !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(line, l) })
	})
	if err != nil {
		return 0, err
	}
	type bucket struct{ end, count float64 }
	var buckets []bucket
	for _, line := range lines {
		_, rest, _ := strings.Cut(line, `,le="`)
		end, _, _ := strings.Cut(rest, `"`)
		var b bucket
		if b.end, err = strconv.ParseFloat(end, 64); err != nil {
			return 0, fmt.Errorf("%s: %w", line, err)
		}
		if b.count, err = strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64); err != nil {
			return 0, fmt.Errorf("%s: %w", line, err)
		}
		buckets = append(buckets, b)
	}
	for _, b := range buckets {
		if b.count >= q*buckets[len(buckets)-1].count {
			return b.end, nil
		}
	}
	return 0, fmt.Errorf("%s%v: nothing was counted", name, labels)
}
