// Package manifests holds what is installed to what is said of it: schemas fit the types, plain YAML is what the chart
// makes, and nobody has more rights than the guide says.
package manifests

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"cotenant.dev/kubernetes/api/v1alpha1"
)

const root = "../.."

type object = map[string]any

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// render is a template with the version of Kubernetes that the scheduler is built of.
func render(t *testing.T, name string, change func(values object)) string {
	t.Helper()
	text, err := renderAt(t, name, fmt.Sprintf("v1.%d.0", minor(t)), change)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// minor is N of the Kubernetes 1.N that the scheduler is built of.
func minor(t *testing.T) (n int) {
	t.Helper()
	_, rest, _ := strings.Cut(string(read(t, "go.mod")), "k8s.io/kubernetes v1.")
	if _, err := fmt.Sscanf(rest, "%d.", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// renderAt is as much of helm template as the chart needs.
func renderAt(t *testing.T, name, kubernetes string, change func(values object)) (string, error) {
	t.Helper()
	var values object
	if err := yaml.Unmarshal(read(t, "chart/values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	change(values)
	functions := template.FuncMap{
		"toYaml": func(of any) string {
			text, err := yaml.Marshal(of)
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSuffix(string(text), "\n")
		},
		"indent": func(by int, text string) string {
			pad := strings.Repeat(" ", by)
			return pad + strings.ReplaceAll(text, "\n", "\n"+pad)
		},
		"semverCompare": func(constraint, of string) (bool, error) {
			least, older := strings.CutPrefix(constraint, "<")
			if !older {
				return false, fmt.Errorf("%s is no constraint that this knows", constraint)
			}
			return version.MustParseSemantic(of).LessThan(version.MustParseSemantic(least)), nil
		},
		"regexMatch": regexp.MatchString,
		"fail":       func(why string) (string, error) { return "", errors.New(why) },
		"sha256sum":  func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) },
	}
	made, err := template.New(name).Option("missingkey=error").Funcs(functions).Parse(string(read(t, "chart/templates/"+name)))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := made.Execute(&text, object{
		"Values": values, "Release": object{"Namespace": "cotenant-system"},
		"Capabilities": object{"KubeVersion": object{"Version": kubernetes}},
	}); err != nil {
		return "", err
	}
	lines := strings.Split(text.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.TrimLeft(strings.Join(lines, "\n"), "\n"), nil
}

// A scheduler may be older than its API server, and not newer. Providers add to the numbers.
// Holds cluster/rights.
func TestTheSchedulerIsNotNewerThanTheAPIServer(t *testing.T) {
	built := minor(t)
	for _, c := range []struct {
		version       string
		enabled, fits bool
	}{
		{fmt.Sprintf("v1.%d.9-gke.1", built-1), true, false},
		{fmt.Sprintf("v1.%d.9-gke.1", built-1), false, true},
		{fmt.Sprintf("v1.%d.0-eks-1a2b", built), true, true},
		{fmt.Sprintf("v1.%d.3+k3s1", built), true, true},
		{fmt.Sprintf("v1.%d.0", built+1), true, true},
	} {
		_, err := renderAt(t, "scheduler.yaml", c.version, func(v object) { v["scheduler"].(object)["enabled"] = c.enabled })
		if (err == nil) != c.fits || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("needs an API server 1.%d or newer, and this one is %s", built, c.version)) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func objects(t *testing.T, text string) []object {
	t.Helper()
	var all []object
	for part := range strings.SplitSeq(text, "\n---\n") {
		var of object
		if err := yaml.UnmarshalStrict([]byte(part), &of); err != nil {
			t.Fatalf("%v in\n%s", err, part)
		}
		all = append(all, of)
	}
	return all
}

// The daemon listens on loopback alone, where the bridge asks; a probe that nothing answers would keep it from its node.
func TestTheDaemonListensWhereTheBridgeAsks(t *testing.T) {
	for _, c := range []struct {
		config string
		port   int
		fits   bool
	}{
		{"mode = \"observe\"\nlisten = \"127.0.0.1:9844\"\n", 9844, true},
		{"  listen='127.0.0.1:80' # for the bridge", 80, true},
		{"listen = \"[::1]:9844\"", 9844, false},
		{"listen = \"127.0.0.1:9844\"", 80, false},
		{"listen = \"0.0.0.0:9844\"", 9844, false},
		{"listen = \"[::]:9844\"", 9844, false},
		{"listen = \"127x0x0x1:9844\"", 9844, false},
		{"# listen = \"127.0.0.1:9844\"", 9844, false},
		{"", 9844, false},
	} {
		text, err := renderAt(t, "agent.yaml", "v1.36.0", func(v object) {
			v["agent"].(object)["config"], v["agent"].(object)["port"] = c.config, c.port
		})
		if c.fits && (err != nil || !strings.Contains(text, fmt.Sprintf("-daemon=127.0.0.1:%d\n", c.port))) ||
			!c.fits && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("agent.config has no listen = \"127.0.0.1:%d\"", c.port))) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// What shows names of tenants is reached from where the chart's own policy lets in, and only by the bridge's port.
// Holds cluster/rights.
func TestMetricsAreBehindAPolicy(t *testing.T) {
	for _, from := range [][]any{nil, {object{"namespaceSelector": object{"x": "y"}}}} {
		text := render(t, "agent.yaml", func(v object) {
			v["agent"].(object)["metrics"] = object{"port": 1234, "from": from}
		})
		var policy, set object
		for _, of := range objects(t, text) {
			switch of["kind"] {
			case "NetworkPolicy":
				policy = of["spec"].(object)
			case "DaemonSet":
				set = of["spec"].(object)
			}
		}
		if !reflect.DeepEqual(policy["podSelector"], set["selector"]) || !reflect.DeepEqual(policy["policyTypes"], []any{"Ingress"}) {
			t.Errorf("%v", policy)
		}
		var want any
		if from != nil {
			want = []any{object{"ports": []any{object{"port": 1234.0}}, "from": from}}
		}
		if !reflect.DeepEqual(policy["ingress"], want) {
			t.Errorf("%v, want %v", policy["ingress"], want)
		}
		ports := fmt.Sprint()
		for _, container := range set["template"].(object)["spec"].(object)["containers"].([]any) {
			ports += fmt.Sprint(container.(object)["ports"])
		}
		if ports != "<nil>[map[containerPort:1234 name:metrics]]" {
			t.Errorf("ports: %s", ports)
		}
	}
}

// A tag in a registry may become another image, which would run as root on every node.
// Holds cluster/rights.
func TestImagesAreNamedByDigest(t *testing.T) {
	for _, c := range []struct{ repository, digest, pull, want string }{
		{"cotenant", "", "IfNotPresent", "image: cotenant:0.1.0\n"},
		{"r.example/cotenant", "sha256:ab", "IfNotPresent", "image: r.example/cotenant@sha256:ab\n"},
		{"r.example/cotenant", "", "Never", "image: r.example/cotenant:0.1.0\n"},
		{"r.example/cotenant", "", "IfNotPresent", ""},
	} {
		for name, many := range map[string]int{"agent.yaml": 2, "scheduler.yaml": 1, "collect.yaml": 1} {
			text, err := renderAt(t, name, "v1.36.0", func(v object) {
				v["scheduler"].(object)["enabled"] = true
				image := v["image"].(object)
				image["repository"], image["digest"], image["pullPolicy"] = c.repository, c.digest, c.pull
			})
			if c.want == "" {
				if name == "agent.yaml" && (err == nil || !strings.Contains(err.Error(), "image.digest is missing")) {
					t.Errorf("%v: %v", c, err)
				}
			} else if err != nil || strings.Count(text, c.want) != many || strings.Count(text, "image: ") != many {
				t.Errorf("%s %v: %v", name, c, err)
			}
		}
	}
}

func TestPodsRunWhereTheyAreToldTo(t *testing.T) {
	selector, affinity := object{"disk": "ssd"}, object{"nodeAffinity": object{"x": "y"}}
	secrets := []any{object{"name": "registry"}}
	for _, part := range []string{"agent", "scheduler"} {
		for _, told := range []bool{false, true} {
			text := render(t, part+".yaml", func(v object) {
				v["scheduler"].(object)["enabled"] = true
				if of := v[part].(object); told {
					of["nodeSelector"], of["affinity"], v["imagePullSecrets"] = selector, affinity, secrets
				}
			})
			all := objects(t, text)
			spec := all[len(all)-1]["spec"].(object)["template"].(object)["spec"].(object)
			want := []any{object{"kubernetes.io/os": "linux"}, nil, nil}
			if told {
				want = []any{selector, affinity, secrets}
			}
			if got := []any{spec["nodeSelector"], spec["affinity"], spec["imagePullSecrets"]}; !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v, want %v", part, got, want)
			}
		}
	}
}

// With COTENANT_BLESS=1 the plain files are written anew.
func TestPlainYAMLIsWhatTheChartMakes(t *testing.T) {
	const namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: cotenant-system\n"
	crds := string(read(t, "chart/crds/nodecontentions.yaml")) + "---\n" + string(read(t, "chart/crds/workloadprofiles.yaml"))
	for name, text := range map[string]string{
		"deploy/agent.yaml":     namespace + "---\n" + crds + "---\n" + render(t, "agent.yaml", func(object) {}) + "---\n" + render(t, "collect.yaml", func(object) {}),
		"deploy/scheduler.yaml": render(t, "scheduler.yaml", func(v object) { v["scheduler"].(object)["enabled"] = true }),
	} {
		text = "# Made from kubernetes/chart with its default values; COTENANT_BLESS=1 go test ./internal/manifests writes it.\n" + text
		objects(t, text)
		if os.Getenv("COTENANT_BLESS") == "1" {
			if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if string(read(t, name)) != text {
			t.Errorf("%s is not what the chart makes; COTENANT_BLESS=1 writes it", name)
		}
	}
	if text := render(t, "scheduler.yaml", func(object) {}); strings.TrimSpace(text) != "" {
		t.Error("the scheduler is installed unasked")
	}
}

// The agent's pod in the guest `kubelet` is the chart's that may enforce, but for what a kubelet alone cannot give it: an
// account, a priority, objects of the API server and a network. With COTENANT_BLESS=1 it is written anew.
// Promise cluster/kubelet: Under a real kubelet one pod is throttled for another and given back, and pods with
// exclusive CPUs are left alone.
func TestTheGuestsAgentIsTheCharts(t *testing.T) {
	const name = "../xtask/src/guests/scenarios/kubelet/agent.yaml"
	text := render(t, "agent.yaml", func(v object) { v["agent"].(object)["mayEnforce"] = true })
	all := objects(t, text)
	set := all[slices.IndexFunc(all, func(of object) bool { return of["kind"] == "DaemonSet" })]
	spec := set["spec"].(object)["template"].(object)["spec"].(object)
	delete(spec, "serviceAccountName")
	delete(spec, "priorityClassName")
	spec["hostNetwork"] = true
	config := spec["volumes"].([]any)[0].(object)
	delete(config, "configMap")
	config["hostPath"] = object{"path": "/etc/cotenant", "type": "Directory"}
	bridge := spec["containers"].([]any)[1].(object)
	bridge["command"] = append(bridge["command"].([]any), "-node=")
	pod, err := yaml.Marshal(object{
		"apiVersion": "v1", "kind": "Pod", "spec": spec,
		"metadata": object{"name": "cotenant", "namespace": "cotenant-system"},
	})
	if err != nil {
		t.Fatal(err)
	}
	text = "# Made from kubernetes/chart; COTENANT_BLESS=1 go test ./internal/manifests writes it.\n" + string(pod)
	if os.Getenv("COTENANT_BLESS") == "1" {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if string(read(t, name)) != text {
		t.Errorf("%s is not what the chart makes; COTENANT_BLESS=1 writes it", name)
	}
}

// Holds cluster/rights.
func TestNobodyHasMoreRightsThanNeeded(t *testing.T) {
	may := func(mayEnforce bool) (rights, caps string) {
		text := render(t, "agent.yaml", func(v object) { v["agent"].(object)["mayEnforce"] = mayEnforce })
		for _, of := range objects(t, text) {
			switch of["kind"] {
			case "ClusterRole":
				for _, rule := range of["rules"].([]any) {
					rights += fmt.Sprint(rule.(object)["resources"], rule.(object)["verbs"])
				}
			case "DaemonSet":
				spec := of["spec"].(object)["template"].(object)["spec"].(object)
				if spec["hostNetwork"] != nil || spec["hostPID"] != true {
					t.Error("hostPID is needed, hostNetwork is not")
				}
				for _, container := range spec["containers"].([]any) {
					security := container.(object)["securityContext"].(object)
					if security["privileged"] != nil || security["allowPrivilegeEscalation"] != false || security["readOnlyRootFilesystem"] != true {
						t.Errorf("%v", security)
					}
					caps += fmt.Sprint(security["capabilities"].(object)["add"])
					if container.(object)["resources"].(object)["limits"] == nil {
						t.Error("no limits")
					}
				}
			}
		}
		return rights, caps
	}
	rights, caps := may(false)
	if want := "[nodes] [get][nodecontentions] [create patch][workloadprofiles] [get create][workloadprofiles/status] [update][tokenreviews] [create][subjectaccessreviews] [create]<nil> [get]"; rights != want {
		t.Errorf("rights: %s", rights)
	}
	if want := "[PERFMON BPF SYS_PTRACE DAC_READ_SEARCH]<nil>"; caps != want {
		t.Errorf("capabilities: %s", caps)
	}
	if _, caps := may(true); caps != "[PERFMON BPF SYS_PTRACE DAC_READ_SEARCH SYS_NICE KILL]<nil>" {
		t.Errorf("capabilities to enforce: %s", caps)
	}
	// What collects profiles may do nothing else.
	rights = ""
	for _, of := range objects(t, render(t, "collect.yaml", func(object) {})) {
		if of["kind"] == "ClusterRole" {
			rights += fmt.Sprint(of["rules"])
		}
	}
	if want := "[map[apiGroups:[cotenant.dev] resources:[workloadprofiles] verbs:[list delete]]]"; rights != want {
		t.Errorf("the collector's rights: %s", rights)
	}
	// The scheduler's, beyond what kube-scheduler itself may do: across the cluster it only reads.
	rights = ""
	for _, of := range objects(t, render(t, "scheduler.yaml", func(v object) { v["scheduler"].(object)["enabled"] = true })) {
		if of["kind"] == "ClusterRole" || of["kind"] == "Role" {
			for _, rule := range of["rules"].([]any) {
				rights += fmt.Sprint(of["metadata"].(object)["namespace"], rule.(object)["resources"], rule.(object)["verbs"])
			}
		}
	}
	if want := "<nil> [nodecontentions workloadprofiles] [get list watch]cotenant-system[leases] [create]cotenant-system[leases] [get update]"; rights != want {
		t.Errorf("the scheduler's rights: %s", rights)
	}
}

// What a type writes must be in the schema: what is not there is pruned without a word.
// Holds cluster/rights.
func TestSchemasHaveAllFieldsOfTheTypesAndBoundAllLists(t *testing.T) {
	for path, of := range map[string]any{
		"chart/crds/nodecontentions.yaml":  v1alpha1.NodeContention{},
		"chart/crds/workloadprofiles.yaml": v1alpha1.WorkloadProfile{},
	} {
		var crd object
		if err := yaml.Unmarshal(read(t, path), &crd); err != nil {
			t.Fatal(err)
		}
		version := crd["spec"].(object)["versions"].([]any)[0].(object)
		schema := version["schema"].(object)["openAPIV3Schema"].(object)
		for _, part := range []string{"Spec", "Status"} {
			if field, there := reflect.TypeOf(of).FieldByName(part); there {
				compare(t, path+" ."+part, field.Type, schema["properties"].(object)[strings.ToLower(part)].(object))
			}
		}
	}
}

// Of a path with several results kubectl shows the first one only.
func TestColumnsShowOneFieldEach(t *testing.T) {
	for _, path := range []string{"chart/crds/nodecontentions.yaml", "chart/crds/workloadprofiles.yaml"} {
		var crd object
		if err := yaml.Unmarshal(read(t, path), &crd); err != nil {
			t.Fatal(err)
		}
		version := crd["spec"].(object)["versions"].([]any)[0].(object)
		for _, column := range version["additionalPrinterColumns"].([]any) {
			field := column.(object)["jsonPath"].(string)
			at := version["schema"].(object)["openAPIV3Schema"].(object)
			for name := range strings.SplitSeq(strings.TrimPrefix(field, "."), ".") {
				if name == "creationTimestamp" {
					break
				}
				properties, _ := at["properties"].(object)
				if at, _ = properties[name].(object); at == nil {
					t.Errorf("%s: %s is no field", path, field)
					break
				}
			}
		}
	}
}

func compare(t *testing.T, at string, of reflect.Type, schema object) {
	t.Helper()
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() == reflect.Slice {
		if schema["maxItems"] == nil {
			t.Errorf("%s is not bounded", at)
		}
		compare(t, at+"[]", of.Elem(), schema["items"].(object))
		return
	}
	if of.Kind() == reflect.String && schema["maxLength"] == nil && schema["enum"] == nil {
		t.Errorf("%s is not bounded", at)
	}
	if of.Kind() != reflect.Struct || of.Name() == "Time" {
		return
	}
	properties := schema["properties"].(object)
	var names []string
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
		if properties[name] == nil {
			t.Errorf("%s has no %s", at, name)
			continue
		}
		compare(t, at+"."+name, of.Field(i).Type, properties[name].(object))
	}
	for name := range properties {
		if !slices.Contains(names, name) {
			t.Errorf("%s.%s is nowhere in the types", at, name)
		}
	}
	if _, err := json.Marshal(reflect.New(of).Interface()); err != nil {
		t.Error(err)
	}
}
