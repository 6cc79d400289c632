// Package cluster tests the scheduler and the objects with a real etcd and a real API server. Nodes are fake: objects
// that nobody runs pods on. COTENANT_CONTROL_PLANE names a folder with etcd, kube-apiserver and cotenant-scheduler.
package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"cotenant.dev/kubernetes/api/v1alpha1"
	"cotenant.dev/kubernetes/internal/daemon"
	"cotenant.dev/kubernetes/internal/publish"
)

const (
	ours  = "cotenant-scheduler"
	stock = "stock-scheduler"
)

// cluster is a control plane of our own; it ends with the test.
type cluster struct {
	t       *testing.T
	dir     string
	config  *rest.Config
	client  *kubernetes.Clientset
	dynamic *dynamic.DynamicClient
}

func start(t *testing.T) *cluster {
	t.Helper()
	programs := os.Getenv("COTENANT_CONTROL_PLANE")
	if programs == "" {
		t.Skip("COTENANT_CONTROL_PLANE names no folder with etcd, kube-apiserver and cotenant-scheduler")
	}
	c := &cluster{t: t, dir: t.TempDir()}
	peer, etcd, secure := c.port(), c.port(), c.port()
	c.run(filepath.Join(programs, "etcd"), "--data-dir", filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync", "--log-level", "error",
		"--listen-client-urls", "http://"+etcd, "--advertise-client-urls", "http://"+etcd,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer, "--initial-cluster", "default=http://"+peer)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	c.write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	c.write("tokens.csv", "secret,admin,admin,system:masters\n")
	_, port, _ := net.SplitHostPort(secure)
	c.run(filepath.Join(programs, "kube-apiserver"), "--etcd-servers=http://"+etcd, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--secure-port="+port, "--cert-dir="+filepath.Join(c.dir, "certs"), "--service-account-issuer=https://cluster.test",
		"--service-account-key-file="+filepath.Join(c.dir, "key.pem"), "--service-account-signing-key-file="+filepath.Join(c.dir, "key.pem"),
		"--token-auth-file="+filepath.Join(c.dir, "tokens.csv"), "--authorization-mode=AlwaysAllow", "--service-cluster-ip-range=10.0.0.0/24",
		"--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount")
	c.config = &rest.Config{Host: "https://" + secure, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 2000, Burst: 2000}
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		t.Fatal(err)
	}
	if c.dynamic, err = dynamic.NewForConfig(c.config); err != nil {
		t.Fatal(err)
	}
	c.eventually("the API server is ready", func() bool {
		return c.client.RESTClient().Get().AbsPath("/readyz").Do(context.Background()).Error() == nil
	})
	c.install()
	kubeconfig := filepath.Join(c.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(api.Config{
		Clusters:       map[string]*api.Cluster{"c": {Server: c.config.Host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*api.AuthInfo{"u": {Token: "secret"}},
		Contexts:       map[string]*api.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, kubeconfig); err != nil {
		t.Fatal(err)
	}
	c.write("scheduler.yaml", fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: { leaderElect: false }
clientConnection: { kubeconfig: %s, qps: 2000, burst: 2000 }
profiles:
  - schedulerName: %s
    percentageOfNodesToScore: 100
    plugins: { multiPoint: { enabled: [{ name: Cotenant, weight: 20 }] } }
  - schedulerName: %s
    percentageOfNodesToScore: 100
`, kubeconfig, ours, stock))
	_, port, _ = net.SplitHostPort(c.port())
	c.run(filepath.Join(programs, "cotenant-scheduler"), "--config", filepath.Join(c.dir, "scheduler.yaml"), "--secure-port", port,
		"--authentication-kubeconfig", kubeconfig, "--authorization-kubeconfig", kubeconfig)
	return c
}

func (c *cluster) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// port is an address on this machine that is free now.
func (c *cluster) port() string {
	c.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// run starts a program; it is ended before those that were started earlier.
func (c *cluster) run(program string, args ...string) {
	c.t.Helper()
	var said bytes.Buffer
	command := exec.Command(program, args...)
	command.Stdout, command.Stderr = &said, &said
	if err := command.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		done := make(chan error, 1)
		go func() { done <- command.Wait() }()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			_ = command.Process.Kill()
			<-done
		}
		if c.t.Failed() {
			text := said.String()
			c.t.Logf("%s said last:\n%s", filepath.Base(program), text[max(0, len(text)-4000):])
		}
	})
}

func (c *cluster) eventually(what string, holds func() bool) {
	c.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if holds() {
			return
		}
	}
	c.t.Fatalf("it does not come true: %s", what)
}

// install takes what an operator applies, word for word.
func (c *cluster) install() {
	c.t.Helper()
	for _, file := range []string{"agent.yaml", "scheduler.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../deploy", file))
		if err != nil {
			c.t.Fatal(err)
		}
		for part := range strings.SplitSeq(string(text), "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(part), &object.Object); err != nil {
				c.t.Fatal(err)
			}
			c.eventually(object.GetKind()+" "+object.GetName()+" is taken", func() bool {
				err := c.create(object)
				if err != nil && !apierrors.IsNotFound(err) {
					c.t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
				}
				return err == nil
			})
		}
	}
	c.eventually("the objects are known", func() bool {
		_, nodes := c.dynamic.Resource(v1alpha1.NodeContentionResource).List(context.Background(), metav1.ListOptions{})
		_, profiles := c.dynamic.Resource(v1alpha1.WorkloadProfileResource).List(context.Background(), metav1.ListOptions{})
		return nodes == nil && profiles == nil
	})
}

func (c *cluster) create(object *unstructured.Unstructured) error {
	group := object.GroupVersionKind()
	// As the API server itself names resources.
	plural := strings.ToLower(group.Kind) + "s"
	plural = strings.NewReplacer("policys", "policies", "classs", "classes").Replace(plural)
	of := c.dynamic.Resource(schema.GroupVersionResource{Group: group.Group, Version: group.Version, Resource: plural})
	strict := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	var err error
	if object.GetNamespace() != "" {
		_, err = of.Namespace(object.GetNamespace()).Create(context.Background(), object, strict)
	} else {
		_, err = of.Create(context.Background(), object, strict)
	}
	return err
}

// node has 10 CPUs. Nobody runs anything on it.
func (c *cluster) node(name string) {
	c.t.Helper()
	size := v1.ResourceList{v1.ResourceCPU: resource.MustParse("10"), v1.ResourceMemory: resource.MustParse("64Gi"), v1.ResourcePods: resource.MustParse("110")}
	node, err := c.client.CoreV1().Nodes().Create(context.Background(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	node.Spec.Taints = nil // who comes is taken for not ready
	if node, err = c.client.CoreV1().Nodes().Update(context.Background(), node, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	node.Status = v1.NodeStatus{Capacity: size, Allocatable: size, Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}
	if _, err := c.client.CoreV1().Nodes().UpdateStatus(context.Background(), node, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// measure publishes, as the bridge does, how many of the 10 CPUs of a node are used.
func (c *cluster) measure(name string, used float64) {
	c.t.Helper()
	cores := daemon.Shared{What: "cores", Name: "cores", Capacity: 10, Use: &used}
	measured := daemon.Node{Version: "test", Mode: "observe", Shared: []daemon.Shared{cores}}
	if err := publish.New(c.dynamic, name).Publish(context.Background(), measured); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) profile(name string, use, sensitivity float64) {
	c.t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.WorkloadProfile{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WorkloadProfile"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1alpha1.WorkloadProfileSpec{Resources: []v1alpha1.ProfileResource{{
			Kind: v1alpha1.Cores, Use: &v1alpha1.Measured{Mean: use}, Sensitivity: &v1alpha1.Measured{Mean: sensitivity},
		}}},
	})
	if err == nil {
		err = c.create(&unstructured.Unstructured{Object: fields})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) pod(name, scheduler string, annotations map[string]string) *v1.Pod {
	c.t.Helper()
	little := v1.ResourceList{v1.ResourceCPU: resource.MustParse("50m"), v1.ResourceMemory: resource.MustParse("64Mi")}
	pod, err := c.client.CoreV1().Pods("default").Create(context.Background(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: v1.PodSpec{SchedulerName: scheduler, Containers: []v1.Container{{
			Name: "main", Image: "none", Resources: v1.ResourceRequirements{Requests: little},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return pod
}

// bound is the node of a pod, once it has one.
func (c *cluster) bound(name string) (node string) {
	c.t.Helper()
	c.eventually("pod "+name+" is bound", func() bool {
		pod, err := c.client.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
		if err == nil {
			node = pod.Spec.NodeName
		}
		return node != ""
	})
	return node
}

// event of a pod whose note has these words.
func (c *cluster) event(pod, words string) {
	c.t.Helper()
	c.eventually("an event of "+pod+" says "+words, func() bool {
		list, err := c.client.EventsV1().Events("default").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		for _, event := range list.Items {
			if event.Regarding.Name == pod && strings.Contains(event.Note, words) {
				return true
			}
		}
		return false
	})
}

func TestARealSchedulerAvoidsNodesWhereSpeedIsLost(t *testing.T) {
	c := start(t)
	for _, name := range []string{"busy", "free", "unknown"} {
		c.node(name)
	}
	// Nobody knows anything yet: pods are bound all the same.
	c.pod("early", ours, nil)
	c.bound("early")
	c.event("early", "interference is not considered: no profile of workload early")
	c.profile("web", 0.1, 0.8)
	c.measure("busy", 9)
	c.measure("free", 0)
	as := map[string]string{"cotenant.dev/profile": "web"}
	// Objects reach the scheduler in their own time.
	for i := 0; ; i++ {
		name := fmt.Sprintf("web-%d", i)
		c.pod(name, ours, as)
		if node := c.bound(name); node == "free" {
			c.event(name, "on free the pod is predicted to lose")
			break
		} else if i == 20 {
			t.Fatalf("the %dth pod goes to %s", i, node)
		}
	}
	// Where its goal would be missed it waits, and goes where nothing is known otherwise.
	goal := map[string]string{"cotenant.dev/profile": "web", "cotenant.dev/goal": "85%"}
	c.measure("free", 5)
	c.pod("with-goal", ours, goal)
	if node := c.bound("with-goal"); node != "unknown" {
		t.Errorf("it goes to %s", node)
	}
	c.measure("unknown", 5)
	c.pod("waits", ours, goal)
	c.event("waits", "and its goal is 85%")
	c.measure("unknown", 0)
	if node := c.bound("waits"); node != "unknown" {
		t.Errorf("it waits for %s", node)
	}
}

func TestTheTableIsReadable(t *testing.T) {
	c := start(t)
	c.node("node-1")
	c.measure("node-1", 6.2)
	table, err := c.client.RESTClient().Get().AbsPath("/apis/cotenant.dev/v1alpha1/nodecontentions").
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Do(context.Background()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var read metav1.Table
	if err := yaml.Unmarshal(table, &read); err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, column := range read.ColumnDefinitions {
		columns = append(columns, column.Name)
	}
	if got := fmt.Sprint(columns, read.Rows[0].Cells[:4]); got != "[Name Cores Memory Cache Worst Mode Seen] [node-1 62% ? ?]" {
		t.Error(got)
	}
}

func TestAnAgentWritesTheObjectOfItsOwnNode(t *testing.T) {
	c := start(t)
	as := rest.CopyConfig(c.config)
	as.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:cotenant-system:cotenant-node",
		Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {"node-1"}},
	}
	agent, err := dynamic.NewForConfig(as)
	if err != nil {
		t.Fatal(err)
	}
	c.node("node-1")
	c.node("node-2")
	write := func(name string) error {
		return publish.New(agent, name).Publish(context.Background(), daemon.Node{Mode: "observe"})
	}
	if err := write("node-1"); err != nil {
		t.Fatal(err)
	}
	c.eventually("another node's is refused", func() bool {
		err := write("node-2")
		return err != nil && strings.Contains(err.Error(), "an agent writes the NodeContention of its own node")
	})
	if err := write("node-1"); err != nil {
		t.Error(err)
	}
}

// How many pods a second the scheduler binds with our plugin and without: COTENANT_PODS of them, on 1,000 nodes.
func TestRate(t *testing.T) {
	c, pods := start(t), 2_000
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
