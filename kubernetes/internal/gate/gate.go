// Package gate serves the daemon's metrics, which name the containers of all tenants, to clients that the API server
// lets read them: as kube-rbac-proxy does, by the token that they show. The daemon itself listens on loopback alone.
package gate

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/cert"
)

const (
	// connections at once, and questions to the API server.
	connections = 32
	questions   = 4
	// answers of the API server that are remembered, and for how long.
	answers = 256
	yesFor  = time.Minute
	noFor   = 10 * time.Second
	// largest is of an answer of the daemon, bytes.
	largest = 16 << 20
)

var (
	tokenReviews  = schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "tokenreviews"}
	accessReviews = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews"}
)

var errBusy = errors.New("too many ask at once")

// Gate is before one daemon.
type Gate struct {
	client dynamic.Interface
	daemon string
	http   http.Client
	now    func() time.Time
	asking chan struct{}
	mutex  sync.Mutex
	known  map[[sha256.Size]byte]answer
}

type answer struct {
	allowed bool
	until   time.Time
}

// New is before the daemon at that address. Without a client of the API server no request can be authenticated.
func New(client dynamic.Interface, daemon string) *Gate {
	return &Gate{
		client: client, daemon: daemon, http: http.Client{Timeout: 10 * time.Second}, now: time.Now,
		asking: make(chan struct{}, questions), known: map[[sha256.Size]byte]answer{},
	}
}

// Run serves at an address until the context ends, with a certificate of its own.
func (g *Gate) Run(ctx context.Context, address string) error {
	certificate, key, err := cert.GenerateSelfSignedCertKey("cotenant", nil, nil)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := http.Server{
		Handler: g, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 30 * time.Second, MaxHeaderBytes: 32 << 10, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	return server.ServeTLS(&few{Listener: listener, free: make(chan struct{}, connections)}, "", "")
}

// ServeHTTP answers /healthz to all, and /metrics to authorised clients.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.URL.Path != "/healthz" && r.URL.Path != "/metrics" {
		http.Error(w, "there are /metrics and /healthz", http.StatusNotFound)
		return
	}
	if r.URL.Path == "/metrics" {
		token, shown := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !shown || token == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "show the token of an account that may get /metrics", http.StatusUnauthorized)
			return
		}
		switch allowed, err := g.allowed(r.Context(), token); {
		case err != nil:
			http.Error(w, "this client cannot be authenticated now", http.StatusServiceUnavailable)
			return
		case !allowed:
			http.Error(w, "this account may not get /metrics", http.StatusForbidden)
			return
		}
	}
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+g.daemon+r.URL.Path, nil)
	if err != nil {
		http.Error(w, "the daemon cannot be asked", http.StatusServiceUnavailable)
		return
	}
	request.Header.Set("Accept", r.Header.Get("Accept"))
	said, err := g.http.Do(request)
	if err != nil {
		http.Error(w, "the daemon does not answer", http.StatusServiceUnavailable)
		return
	}
	defer said.Body.Close()
	w.Header().Set("Content-Type", said.Header.Get("Content-Type"))
	w.WriteHeader(said.StatusCode)
	io.Copy(w, io.LimitReader(said.Body, largest))
}

// allowed says whether an account may get /metrics.
func (g *Gate) allowed(ctx context.Context, token string) (bool, error) {
	key := sha256.Sum256([]byte(token))
	g.mutex.Lock()
	known, there := g.known[key]
	g.mutex.Unlock()
	if there && g.now().Before(known.until) {
		return known.allowed, nil
	}
	select {
	case g.asking <- struct{}{}:
		defer func() { <-g.asking }()
	default:
		return false, errBusy
	}
	allowed, err := g.ask(ctx, token)
	if err != nil {
		return false, err
	}
	until := g.now().Add(noFor)
	if allowed {
		until = g.now().Add(yesFor)
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if len(g.known) >= answers {
		clear(g.known)
	}
	g.known[key] = answer{allowed, until}
	return allowed, nil
}

func (g *Gate) ask(ctx context.Context, token string) (bool, error) {
	if g.client == nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	review := func(of schema.GroupVersionResource, kind string, spec map[string]any) (map[string]any, error) {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": of.GroupVersion().String(), "kind": kind, "metadata": map[string]any{}, "spec": spec,
		}}
		made, err := g.client.Resource(of).Create(ctx, object, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		status, _, err := unstructured.NestedMap(made.Object, "status")
		return status, err
	}
	reviewed, err := review(tokenReviews, "TokenReview", map[string]any{"token": token})
	if err != nil || reviewed["authenticated"] != true {
		return false, err
	}
	user, _, err := unstructured.NestedMap(reviewed, "user")
	if err != nil {
		return false, err
	}
	may, err := review(accessReviews, "SubjectAccessReview", map[string]any{
		"user": user["username"], "uid": user["uid"], "groups": user["groups"], "extra": user["extra"],
		"nonResourceAttributes": map[string]any{"path": "/metrics", "verb": "get"},
	})
	return err == nil && may["allowed"] == true, err
}

// few is a listener with so many connections at once; the others wait.
type few struct {
	net.Listener
	free chan struct{}
}

func (f *few) Accept() (net.Conn, error) {
	f.free <- struct{}{}
	conn, err := f.Listener.Accept()
	if err != nil {
		<-f.free
		return nil, err
	}
	return &counted{Conn: conn, done: sync.OnceFunc(func() { <-f.free })}, nil
}

type counted struct {
	net.Conn
	done func()
}

func (c *counted) Close() error {
	defer c.done()
	return c.Conn.Close()
}
