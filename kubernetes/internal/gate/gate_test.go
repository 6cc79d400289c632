package gate

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// Names of tenants are told to those alone whom the API server lets get /metrics, by the token that they show.
// Promise cluster/rights: Agents and scheduler have only the rights that they need, metrics are for users with
// permission, and images are named by digest.
func TestMetricsAreForThoseWhoMayGetThem(t *testing.T) {
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, "tenant "+r.URL.Path+" "+r.Header.Get("Authorization"))
	}))
	defer daemon.Close()
	client := fake.NewSimpleDynamicClient(runtime.NewScheme())
	asked := 0
	client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		asked++
		object := action.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
		spec := object.Object["spec"].(map[string]any)
		switch action.GetResource().Resource {
		case "tokenreviews":
			if spec["token"] == "away" {
				return true, nil, errors.New("the API server is away")
			}
			user := map[string]any{"username": spec["token"], "groups": []any{"g"}}
			object.Object["status"] = map[string]any{"authenticated": spec["token"] != "forged", "user": user}
		case "subjectaccessreviews":
			if of := spec["nonResourceAttributes"].(map[string]any); of["path"] != "/metrics" || of["verb"] != "get" {
				t.Errorf("%v", spec)
			}
			object.Object["status"] = map[string]any{"allowed": spec["user"] == "prometheus"}
		}
		return true, object, nil
	})
	now := time.Unix(1_800_000_000, 0)
	gate := New(client, strings.TrimPrefix(daemon.URL, "http://"))
	gate.now = func() time.Time { return now }
	get := func(gate *Gate, path, token string) (int, string) {
		request := httptest.NewRequest(http.MethodGet, path, nil)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		answer := httptest.NewRecorder()
		gate.ServeHTTP(answer, request)
		return answer.Code, answer.Body.String()
	}
	for _, c := range []struct {
		path, token string
		want        int
	}{
		{"/healthz", "", 200}, {"/metrics", "", 401}, {"/metrics", "forged", 403}, {"/metrics", "tenant", 403},
		{"/metrics", "away", 503}, {"/metrics", "prometheus", 200}, {"/", "prometheus", 404}, {"/data", "prometheus", 404},
	} {
		code, text := get(gate, c.path, c.token)
		if code != c.want || strings.HasPrefix(text, "tenant ") != (code == 200) || strings.Contains(text, "Bearer") {
			t.Errorf("%v: %d %s", c, code, text)
		}
	}
	// What was answered is remembered for a while; nobody has the API server asked without end.
	before := asked
	get(gate, "/metrics", "prometheus")
	if get(gate, "/metrics", "tenant"); asked != before {
		t.Errorf("asked %d times", asked-before)
	}
	now = now.Add(2 * yesFor)
	if get(gate, "/metrics", "prometheus"); asked != before+2 {
		t.Errorf("asked %d times", asked-before)
	}
	for i := range 3 * answers {
		gate.allowed(context.Background(), strings.Repeat("x", i+1))
	}
	if len(gate.known) > answers {
		t.Errorf("%d are remembered", len(gate.known))
	}
	for range questions {
		gate.asking <- struct{}{}
	}
	if code, _ := get(gate, "/metrics", "another"); code != 503 {
		t.Errorf("%d while too many ask", code)
	}
	if code, _ := get(New(nil, gate.daemon), "/metrics", "prometheus"); code != 403 {
		t.Errorf("%d where nobody can be asked", code)
	}
}

func TestItIsServedWithTLS(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- New(nil, "127.0.0.1:1").Run(ctx, address) }()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if answer, err := client.Get("https://" + address + "/healthz"); err == nil {
			if answer.Body.Close(); answer.StatusCode != 503 {
				t.Errorf("%d without a daemon", answer.StatusCode)
			}
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	stop()
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
