package identity

import (
	"strings"
	"testing"
)

// Holds cluster/containers.
func TestCgroup(t *testing.T) {
	for of, want := range map[string]string{
		"kubepods-burstable-podab_cd.slice:cri-containerd:1234": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_cd.slice/cri-containerd-1234.scope",
		"kubelet-kubepods.slice:crio:1234":                      "/kubelet.slice/kubelet-kubepods.slice/crio-1234.scope",
		":docker:1234":                                          "/system.slice/docker-1234.scope",
		"-.slice:x:1234":                                        "",
		"/kubepods/besteffort/podabcd/1234":                     "/kubepods/besteffort/podabcd/1234",
		"kubepods/podabcd/1234":                                 "/kubepods/podabcd/1234",
		"":                                                      "",
		"/":                                                     "",
		"/kubepods":                                             "",
		"/kubepods/../etc":                                      "",
		"/kubepods//x":                                          "",
		"/kubepods/a\nb":                                        "",
		"a.slice:x":                                             "",
		"a.slice:x:y/../z":                                      "",
		"a/b.slice:x:y":                                         "",
		"a--b.slice:x:y":                                        "",
		"/" + strings.Repeat("x/", 600) + "y":                   "",
		strings.Repeat("x-", 600) + "y.slice:x:y": "",
	} {
		got, err := cgroup(of)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%.60q: %q, %v; want %q", of, got, err, want)
		}
	}
}
