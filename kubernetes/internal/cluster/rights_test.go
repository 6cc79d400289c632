package cluster

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"cotenant.dev/kubernetes/internal/publish"
)

// The chart's roles let agents and its scheduler do their work, and nothing of what would harm others.
// Holds cluster/rights.
func TestRightsAreEnoughAndNoMore(t *testing.T) {
	c := plane(t)
	for _, name := range []string{"node-1", "node-2"} {
		c.node(name)
	}
	if _, err := c.client.CoreV1().Secrets("default").Create(t.Context(), &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Agents measure both nodes and write a profile.
	for node, used := range map[string]float64{"node-1": 9, "node-2": 0} {
		agent := c.asAgent(node)
		if err := publish.New(agent, node).Publish(t.Context(), using(used)); err != nil {
			t.Fatal(err)
		}
		if err := c.seen(agent, "web", node, 1); err != nil {
			t.Fatal(err)
		}
	}
	// The scheduler as the chart configures it, with its lease.
	config, err := c.client.CoreV1().ConfigMaps(system).Get(t.Context(), ours, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.scheduler(config.Data["scheduler.yaml"])
	as := map[string]string{"cotenant.dev/profile": "web"}
	c.pod("web-0", ours, as)
	c.event("web-0", "on "+c.bound("web-0")+" the pod is predicted to lose")
	lease, err := c.client.CoordinationV1().Leases(system).Get(t.Context(), ours, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		t.Errorf("the scheduler has no lease: %v", err)
	}
	// Who asks for its metrics is known and allowed by the API server's word.
	if lines, err := c.metric(insecure(), func(line string) bool { return strings.HasPrefix(line, "scheduler_") }); err != nil || len(lines) == 0 {
		t.Errorf("metrics: %d lines, %v", len(lines), err)
	}

	const objects = "/apis/cotenant.dev/v1alpha1"
	both := []string{
		"GET /api/v1/secrets",
		"GET /api/v1/namespaces/default/secrets/key",
		"GET /api/v1/namespaces/kube-system/configmaps",
		"POST /api/v1/namespaces/default/pods/web-0/eviction",
		"POST /api/v1/namespaces/default/pods",
		"PATCH /api/v1/nodes/node-1",
		"DELETE /api/v1/nodes/node-1",
		"POST /api/v1/namespaces/cotenant-system/serviceaccounts/cotenant-node/token",
		"POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		"PUT " + objects + "/namespaces/default/workloadprofiles/web",
		"PATCH " + objects + "/namespaces/default/workloadprofiles/web",
		"DELETE " + objects + "/namespaces/default/workloadprofiles/web",
		"DELETE " + objects + "/nodecontentions/node-1",
		"PUT /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-1",
	}
	for who, of := range map[string]struct {
		config *rest.Config
		not    []string
	}{
		"an agent": {c.agent("node-1"), []string{
			"GET /api/v1/pods",
			"GET /api/v1/nodes",
			"DELETE /api/v1/namespaces/default/pods/web-0",
			"POST /api/v1/namespaces/default/pods/web-0/binding",
			"GET " + objects + "/nodecontentions",
			"GET " + objects + "/workloadprofiles",
			"PUT /apis/coordination.k8s.io/v1/namespaces/cotenant-system/leases/cotenant-scheduler",
		}},
		"the scheduler": {c.as(c.token("cotenant-scheduler", nil)), []string{
			"POST " + objects + "/nodecontentions",
			"PATCH " + objects + "/nodecontentions/node-1",
			"PUT " + objects + "/namespaces/default/workloadprofiles/web/status",
		}},
	} {
		client, err := kubernetes.NewForConfig(of.config)
		if err != nil {
			t.Fatal(err)
		}
		for _, request := range append(of.not, both...) {
			verb, path, _ := strings.Cut(request, " ")
			ask := func(as *kubernetes.Clientset) error {
				return as.RESTClient().Verb(verb).AbsPath(path).Param("dryRun", "All").Do(t.Context()).Error()
			}
			if err := ask(client); !apierrors.IsForbidden(err) {
				t.Errorf("%s may %s: %v", who, request, err)
			}
			// There is something to refuse.
			if err := ask(c.client); apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
				t.Errorf("nobody may %s: %v", request, err)
			}
		}
	}
}
