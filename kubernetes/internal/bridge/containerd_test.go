package bridge_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"cotenant.dev/kubernetes/internal/bridge"
	"cotenant.dev/kubernetes/internal/daemon"
	"cotenant.dev/kubernetes/internal/kubelet"
)

// imageName is that of an image with one program, which waits.
const imageName = "cotenant.dev/test/wait:1"

// containerd is a real one in a folder of its own.
type containerd struct {
	t        *testing.T
	programs string
	dir      string
	command  *exec.Cmd
	conn     *grpc.ClientConn
	images   cri.ImageServiceClient
	cri.RuntimeServiceClient
}

func (c *containerd) path(name string) string { return filepath.Join(c.dir, name) }

// start begins it, and waits until it answers.
func (c *containerd) start(ctx context.Context) {
	c.t.Helper()
	c.command = exec.Command(filepath.Join(c.programs, "containerd"), "--config", c.path("config.toml"), "--log-level", "warn")
	c.command.Env = append(os.Environ(), "PATH="+c.programs+":"+os.Getenv("PATH"))
	log, err := os.OpenFile(c.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	c.command.Stderr = log
	if err := c.command.Start(); err != nil {
		c.t.Fatal(err)
	}
	log.Close()
	c.conn, err = grpc.NewClient("unix://"+c.path("s"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		c.t.Fatal(err)
	}
	c.RuntimeServiceClient, c.images = cri.NewRuntimeServiceClient(c.conn), cri.NewImageServiceClient(c.conn)
	answers := func() bool {
		_, err := c.Version(ctx, &cri.VersionRequest{})
		return err == nil
	}
	for until := time.Now().Add(time.Minute); !answers(); {
		if time.Now().After(until) {
			log, _ := os.ReadFile(c.path("log"))
			c.t.Fatalf("containerd does not answer: %s", log)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// stop ends it; containers go on.
func (c *containerd) stop() {
	c.conn.Close()
	_ = c.command.Process.Signal(os.Interrupt)
	_ = c.command.Wait()
}

// image hands it an image that holds one program.
func (c *containerd) image(ctx context.Context, program string) {
	c.t.Helper()
	blobs := map[string][]byte{}
	add := func(kind string, blob []byte) map[string]any {
		digest := fmt.Sprintf("%x", sha256.Sum256(blob))
		blobs["blobs/sha256/"+digest] = blob
		return map[string]any{"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + digest, "size": len(blob)}
	}
	asJSON := func(value any) []byte {
		text, err := json.Marshal(value)
		if err != nil {
			c.t.Fatal(err)
		}
		return text
	}
	pack := func(files map[string][]byte) []byte {
		var packed bytes.Buffer
		out := tar.NewWriter(&packed)
		for name, content := range files {
			if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
				c.t.Fatal(err)
			}
			if _, err := out.Write(content); err != nil {
				c.t.Fatal(err)
			}
		}
		if err := out.Close(); err != nil {
			c.t.Fatal(err)
		}
		return packed.Bytes()
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		c.t.Fatal(err)
	}
	layer := pack(map[string][]byte{"wait": binary})
	config := add("config.v1+json", asJSON(map[string]any{
		"architecture": goruntime.GOARCH, "os": "linux", "config": map[string]any{"Entrypoint": []string{"/wait"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	}))
	manifest := add("manifest.v1+json", asJSON(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
		"layers": []any{add("layer.v1.tar", layer)},
	}))
	manifest["annotations"] = map[string]string{"io.containerd.image.name": imageName}
	manifest["platform"] = map[string]string{"architecture": goruntime.GOARCH, "os": "linux"}
	blobs["index.json"] = asJSON(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}})
	blobs["oci-layout"] = []byte(`{"imageLayoutVersion":"1.0.0"}`)
	file := c.path("image.tar")
	if err := os.WriteFile(file, pack(blobs), 0o600); err != nil {
		c.t.Fatal(err)
	}
	ctr := exec.Command(filepath.Join(c.programs, "ctr"), "--address", c.path("s"), "--namespace", "k8s.io", "images", "import", "--local", "--snapshotter", "native", file)
	if out, err := ctr.CombinedOutput(); err != nil {
		c.t.Fatalf("the image is not taken: %v: %s", err, out)
	}
	eventually(c.t, "the image is known", func() bool {
		status, err := c.images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: imageName}})
		return err == nil && status.Image != nil
	})
}

// run starts a pod with one container on CPU 0; the ids of both, and the process.
func (c *containerd) run(ctx context.Context, name string) (pod, container string, pid int) {
	c.t.Helper()
	host := &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER}
	sandbox := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Uid: name, Namespace: "shop"},
		Labels:   map[string]string{"app": "db"}, Annotations: map[string]string{"cotenant.dev/class": "low"},
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    fmt.Sprintf("/cotenant-nri-%d", os.Getpid()),
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: host},
		},
	}
	made, err := c.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		of := &cri.RemovePodSandboxRequest{PodSandboxId: made.PodSandboxId}
		_, _ = c.StopPodSandbox(context.Background(), &cri.StopPodSandboxRequest{PodSandboxId: of.PodSandboxId})
		_, _ = c.RemovePodSandbox(context.Background(), of)
	})
	config := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "main"}, Image: &cri.ImageSpec{Image: imageName},
		Linux: &cri.LinuxContainerConfig{
			Resources:       &cri.LinuxContainerResources{CpusetCpus: "0"},
			SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: host},
		},
	}
	created, err := c.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: made.PodSandboxId, Config: config, SandboxConfig: sandbox})
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
		c.t.Fatal(err)
	}
	status, err := c.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: created.ContainerId, Verbose: true})
	if err != nil {
		c.t.Fatal(err)
	}
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(status.Info["info"]), &info); err != nil || info.Pid == 0 {
		c.t.Fatalf("%v: %s", err, status.Info["info"])
	}
	return made.PodSandboxId, created.ContainerId, info.Pid
}

// A container of a real containerd and runc, with a cpuset: the daemon learns of it by the bridge, still knows it when
// containerd was restarted, and finds its process in the group that it was told. COTENANT_CONTAINERD names a folder with
// containerd, its shim and ctr; COTENANT_BINARY the daemon.
// Holds cluster/runtime.
func TestTheRealContainerd(t *testing.T) {
	programs, binary := os.Getenv("COTENANT_CONTAINERD"), os.Getenv("COTENANT_BINARY")
	if programs == "" || binary == "" {
		t.Skip("COTENANT_CONTAINERD names no folder with containerd, or COTENANT_BINARY no cotenant")
	}
	if _, err := exec.LookPath("runc"); err != nil || os.Geteuid() != 0 {
		t.Skip("there is no runc, or we are not root")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	// Paths of sockets are short.
	dir, err := os.MkdirTemp("/tmp", "cotenant-nri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Cleanup(func() {
		groups, _ := filepath.Glob(fmt.Sprintf("/sys/fs/cgroup/*/cotenant-nri-%d", os.Getpid()))
		for _, group := range append(groups, fmt.Sprintf("/sys/fs/cgroup/cotenant-nri-%d", os.Getpid())) {
			_ = os.Remove(group) // runc leaves the parent
		}
	})
	c := &containerd{t: t, programs: programs, dir: dir}
	config := strings.ReplaceAll(`version = 3
root = "$D/root"
state = "$D/state"
temp = "$D/temp"
[grpc]
address = "$D/s"
[plugins."io.containerd.internal.v1.opt"]
path = "$D/opt"
[plugins."io.containerd.nri.v1.nri"]
disable = false
socket_path = "$D/nri.sock"
plugin_path = "$D/plugins"
plugin_config_path = "$D/conf.d"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "native"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "$IMAGE"
[plugins."io.containerd.cri.v1.runtime"]
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
conf_dir = "$D/cni"
bin_dirs = ["$D/bin"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
Root = "$D/runc"
`, "$D", dir)
	config = strings.ReplaceAll(config, "$IMAGE", imageName)
	if err := os.WriteFile(c.path("config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	source := c.path("wait.go")
	if err := os.WriteFile(source, []byte("package main\nimport \"time\"\nfunc main() { time.Sleep(time.Hour) }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-ldflags=-s", "-o", c.path("wait"), source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	rules := "[[rule]]\nname = \"containers\"\nmatch = { label = { app = \"db\" } }\nannotations = [\"class\"]\n"
	if err := os.WriteFile(c.path("c.toml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := exec.Command(binary, "daemon", "--config", c.path("c.toml"), "--socket", c.path("control.sock"))
	agent.Env = append(os.Environ(), "XDG_DATA_HOME="+dir)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = agent.Process.Signal(os.Interrupt)
		_ = agent.Wait()
	})
	type service struct{ Name, Class string }
	services := func() (names []service) {
		out, _ := exec.Command(binary, "status", "--json", "--socket", c.path("control.sock")).Output()
		var status struct{ Services []service }
		_ = json.Unmarshal(out, &status)
		return status.Services
	}

	c.start(ctx)
	t.Cleanup(func() { c.stop() })
	c.image(ctx, c.path("wait"))
	stopped := make(chan struct{})
	bridged, stop := context.WithCancel(ctx)
	go func() {
		defer close(stopped)
		bridge.New(c.path("nri.sock"), kubelet.New(""), daemon.Client{Socket: c.path("control.sock")}, nil).Run(bridged)
	}()
	defer func() { stop(); <-stopped }()

	pod, _, pid := c.run(ctx, "db-0")
	eventually(t, "the daemon knows the container", func() bool { return len(services()) == 1 })
	if found := services()[0]; found != (service{"shop/db-0/main", "low"}) {
		t.Errorf("%v", found)
	}
	allowed, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil || !strings.Contains(string(allowed), "\nCpus_allowed_list:\t0\n") {
		t.Errorf("the container has not its cpuset: %v", err)
	}
	c.stop()
	if found := services(); len(found) != 1 {
		t.Errorf("containerd ended, and the daemon knows %v", found)
	}
	c.start(ctx)
	c.run(ctx, "db-1")
	eventually(t, "the daemon knows both", func() bool { return len(services()) == 2 })
	if _, err := c.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: pod}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon knows the other one only", func() bool {
		found := services()
		return len(found) == 1 && found[0].Name == "shop/db-1/main"
	})
}
