package workload

import (
	"strings"
	"testing"
)

// Holds cluster/containers.
func TestName(t *testing.T) {
	type m = map[string]string
	for _, c := range []struct {
		pod                 string
		labels, annotations m
		want                string
	}{
		{"web-7d9f8c-x2x4z", m{templateHash: "7d9f8c"}, nil, "web"},
		{"a-b-7d9f8c-x2x4z", m{templateHash: "7d9f8c"}, nil, "a-b"},
		{"web-7d9f8c", m{templateHash: "7d9f8c"}, nil, "web"},
		{"web-other-x2x4z", m{templateHash: "7d9f8c"}, nil, "web-other-x2x4z"},
		{"db-0", m{statefulPod: "db-0", revisionHash: "db-6c"}, nil, "db"},
		{"agent-x2x4z", m{revisionHash: "6c"}, nil, "agent"},
		{"nightly-29000000-x2x4z", m{jobName: "nightly-29000000", cronSchedule: "x"}, nil, "nightly"},
		{"import-x2x4z", m{jobName: "import"}, nil, "import"},
		{"import-x2x4z", m{jobName: "\x1b[2J"}, nil, "import-x2x4z"},
		{"a-x2x4z", m{jobName: "A_B-1", cronSchedule: "x"}, nil, "a-x2x4z"},
		{"a-x2x4z", m{cronSchedule: "x"}, nil, "a-x2x4z"},
		{"web--7d9f8c-x2x4z", m{templateHash: "7d9f8c"}, nil, "web--7d9f8c-x2x4z"},
		{"web.-0", m{statefulPod: "web.-0"}, nil, "web.-0"},
		{"alone", nil, nil, "alone"},
		{"web-7d9f8c-x2x4z", m{templateHash: "7d9f8c"}, m{ProfileAnnotation: "checkout"}, "checkout"},
		{"alone", nil, m{ProfileAnnotation: "../etc"}, "alone"},
	} {
		if got := Name(c.pod, c.labels, c.annotations); got != c.want {
			t.Errorf("%s %v %v: %q, want %q", c.pod, c.labels, c.annotations, got, c.want)
		}
	}
}

// Holds cluster/objects.
func TestAlone(t *testing.T) {
	type m = map[string]string
	for _, c := range []struct {
		labels, annotations m
		want                bool
	}{
		{nil, nil, true},
		{m{"app": "web"}, m{ProfileAnnotation: "A_B"}, true},
		{m{jobName: "import"}, nil, false},
		{nil, m{ProfileAnnotation: "checkout"}, false},
		{nil, m{ProfileAnnotation: "pod-x"}, false}, // whoever writes it means it
	} {
		if got := Alone("pod-x", c.labels, c.annotations); got != c.want {
			t.Errorf("%v %v: %v", c.labels, c.annotations, got)
		}
	}
}

func TestIsName(t *testing.T) {
	for text, want := range map[string]bool{
		"a": true, "db-0": true, "0.a-b.example": true, strings.Repeat("a", maxName): true,
		"": false, ".": false, "a..b": false, "a-.b": false, "a.-b": false, ".a": false, "a.": false, "-a": false, "A": false,
		"a/b": false, "a_b": false, "ä": false, strings.Repeat("a", maxName+1): false,
	} {
		if IsName(text) != want {
			t.Errorf("%q: %v, want %v", text, !want, want)
		}
	}
}
