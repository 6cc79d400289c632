// Package cluster tests the scheduler and the objects with a real etcd and a real API server. Nodes are fake: objects
// that nobody runs pods on. COTENANT_CONTROL_PLANE names a folder with etcd, kube-apiserver, cotenant-scheduler and
// cotenant-node.
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
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
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
	// system is the namespace that everything is installed in.
	system = "cotenant-system"
)

// cluster is a control plane of our own; it ends with the test.
type cluster struct {
	t   *testing.T
	dir string
	// config, client and dynamic are those of an administrator.
	config  *rest.Config
	client  *kubernetes.Clientset
	dynamic *dynamic.DynamicClient
	etcd    *program
	api     *program
	// secure is where the scheduler tells its metrics.
	secure string
	probes int
}

// start is a control plane with a scheduler that has two profiles: ours, and what it is without us.
func start(t *testing.T) (*cluster, *program) {
	t.Helper()
	c := plane(t)
	return c, c.schedule(fmt.Sprintf(`  - schedulerName: %s
    plugins: { multiPoint: { enabled: [{ name: Cotenant, weight: 20 }] } }
  - schedulerName: %s
`, ours, stock))
}

// plane is a control plane that schedules nothing yet.
func plane(t *testing.T) *cluster {
	t.Helper()
	if os.Getenv("COTENANT_CONTROL_PLANE") == "" {
		t.Skip("COTENANT_CONTROL_PLANE names no folder with etcd, kube-apiserver, cotenant-scheduler and cotenant-node")
	}
	c := &cluster{t: t, dir: t.TempDir()}
	peer, etcd, secure := c.port(), c.port(), c.port()
	c.etcd = c.run("etcd", "--data-dir", filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync", "--log-level", "error",
		"--listen-client-urls", "http://"+etcd, "--advertise-client-urls", "http://"+etcd,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer, "--initial-cluster", "default=http://"+peer)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	c.write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	c.write("tokens.csv", "secret,admin,admin,system:masters\n")
	_, port, _ := net.SplitHostPort(secure)
	c.api = c.run("kube-apiserver", "--etcd-servers=http://"+etcd, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--secure-port="+port, "--cert-dir="+filepath.Join(c.dir, "certs"), "--service-account-issuer=https://cluster.test",
		"--service-account-key-file="+filepath.Join(c.dir, "key.pem"), "--service-account-signing-key-file="+filepath.Join(c.dir, "key.pem"),
		"--token-auth-file="+filepath.Join(c.dir, "tokens.csv"), "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
		"--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount")
	c.config = &rest.Config{Host: "https://" + secure, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 2000, Burst: 2000}
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		t.Fatal(err)
	}
	if c.dynamic, err = dynamic.NewForConfig(c.config); err != nil {
		t.Fatal(err)
	}
	c.ready()
	c.install()
	return c
}

// as is who has that token.
func (c *cluster) as(token string) *rest.Config {
	config := rest.CopyConfig(c.config)
	config.BearerToken = token
	return config
}

// token of an account that was installed; of its pod, or of none.
func (c *cluster) token(account string, of *v1.Pod) string {
	c.t.Helper()
	day := int64(24 * 60 * 60)
	request := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{ExpirationSeconds: &day}}
	if of != nil {
		request.Spec.BoundObjectRef = &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: of.Name, UID: of.UID}
	}
	made, err := c.client.CoreV1().ServiceAccounts(system).CreateToken(context.Background(), account, request, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return made.Status.Token
}

// kubeconfig is a file for who has that token.
func (c *cluster) kubeconfig(name, token string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := clientcmd.WriteToFile(api.Config{
		Clusters:       map[string]*api.Cluster{"c": {Server: c.config.Host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*api.AuthInfo{"u": {Token: token}},
		Contexts:       map[string]*api.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, path); err != nil {
		c.t.Fatal(err)
	}
	return path
}

func (c *cluster) ready() {
	c.t.Helper()
	c.eventually("the API server is ready", func() bool { return c.readyz() == nil })
}

func (c *cluster) readyz() error {
	return c.client.RESTClient().Get().AbsPath("/readyz").Do(context.Background()).Error()
}

// schedule starts the scheduler with these profiles.
func (c *cluster) schedule(profiles string) *program {
	return c.scheduler(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: { leaderElect: false }
percentageOfNodesToScore: 100
podMaxBackoffSeconds: 1
profiles:
` + profiles)
}

// scheduler starts it with this configuration and its own account, whose rights are to be enough.
func (c *cluster) scheduler(config string) *program {
	c.t.Helper()
	account := c.kubeconfig("scheduler.kubeconfig", c.token("cotenant-scheduler", nil))
	c.write("scheduler.yaml", fmt.Sprintf("%s\nclientConnection: { kubeconfig: %s, qps: 2000, burst: 2000 }\n", config, account))
	c.secure = c.port()
	_, port, _ := net.SplitHostPort(c.secure)
	var scheduler *program
	c.t.Cleanup(func() { // when it has ended
		// An API server that begins anew refuses what it has not read the roles of yet.
		for line := range strings.Lines(scheduler.said.String()) {
			if strings.Contains(line, "forbidden") && c.api.starts == 1 {
				c.t.Errorf("the scheduler's rights are too few: %s", line)
			}
		}
	})
	scheduler = c.run("cotenant-scheduler", "--config", filepath.Join(c.dir, "scheduler.yaml"), "--secure-port", port,
		"--authentication-kubeconfig", account, "--authorization-kubeconfig", account)
	return scheduler
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

// program is one that runs beside the test.
type program struct {
	c       *cluster
	path    string
	args    []string
	command *exec.Cmd
	said    bytes.Buffer
	starts  int
}

// run starts a program of the control plane; it is ended before those that were started earlier.
func (c *cluster) run(name string, args ...string) *program {
	c.t.Helper()
	p := &program{c: c, path: filepath.Join(os.Getenv("COTENANT_CONTROL_PLANE"), name), args: args}
	p.start()
	c.t.Cleanup(func() {
		_ = p.command.Process.Signal(os.Interrupt)
		kill := time.AfterFunc(20*time.Second, func() { _ = p.command.Process.Kill() })
		_ = p.command.Wait()
		kill.Stop()
		if c.t.Failed() {
			text := p.said.String()
			c.t.Logf("%s said last:\n%s", name, text[max(0, len(text)-4000):])
		}
	})
	return p
}

func (p *program) start() {
	p.c.t.Helper()
	p.starts++
	p.command = exec.Command(p.path, p.args...)
	p.command.Stdout, p.command.Stderr = &p.said, &p.said
	if err := p.command.Start(); err != nil {
		p.c.t.Fatal(err)
	}
}

// crash ends it without a chance to put anything in order.
func (p *program) crash() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
}

func (c *cluster) eventually(what string, holds func() bool) {
	c.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
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

// node has 10 CPUs.
func (c *cluster) node(name string) {
	c.t.Helper()
	c.sized(name, "10")
}

// sized is a node of so many CPUs. Nobody runs anything on it.
func (c *cluster) sized(name, cpus string) {
	c.t.Helper()
	size := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpus), v1.ResourceMemory: resource.MustParse("64Gi"), v1.ResourcePods: resource.MustParse("110")}
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
	if err := publish.New(c.dynamic, name).Publish(context.Background(), using(used)); err != nil {
		c.t.Fatal(err)
	}
}

// using is what a daemon says of a node of 10 CPUs.
func using(used float64) daemon.Node {
	cores := daemon.Shared{What: "cores", Name: "cores", Capacity: 10, Use: &used}
	return daemon.Node{Version: "test", Mode: "observe", Shared: []daemon.Shared{cores}}
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

// probe is the node that a pod like that is bound to; the pod is gone then.
func (c *cluster) probe(annotations map[string]string) string {
	c.t.Helper()
	c.probes++
	name, now := fmt.Sprintf("probe-%d", c.probes), int64(0)
	c.pod(name, ours, annotations)
	node := c.bound(name)
	if err := c.client.CoreV1().Pods("default").Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		c.t.Fatal(err)
	}
	return node
}

// settle waits until 20 pods in a row are bound to nodes whose names begin like that: objects reach the scheduler in
// their own time.
func (c *cluster) settle(prefix string, annotations map[string]string) {
	c.t.Helper()
	row := 0
	c.eventually("the scheduler prefers "+prefix, func() bool {
		if row++; !strings.HasPrefix(c.probe(annotations), prefix) {
			row = 0
		}
		return row >= 20
	})
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
