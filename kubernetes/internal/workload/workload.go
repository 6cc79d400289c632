// Package workload says which workload a pod is an instance of, and what its annotations ask for. Bridge and scheduler
// must agree, and neither asks the API server: names and labels tell.
package workload

import "strings"

// Annotations of pods that Cotenant reads.
const (
	ClassAnnotation   = "cotenant.dev/class"
	GoalAnnotation    = "cotenant.dev/goal"
	MetricAnnotation  = "cotenant.dev/metric"
	ProfileAnnotation = "cotenant.dev/profile"
)

// maxName is how long the name of an object of Kubernetes may be (RFC 1123).
const maxName = 253

// Labels that controllers put on their pods.
const (
	templateHash = "pod-template-hash"
	revisionHash = "controller-revision-hash"
	statefulPod  = "statefulset.kubernetes.io/pod-name"
	jobName      = "batch.kubernetes.io/job-name"
	cronSchedule = "batch.kubernetes.io/cronjob-scheduled-timestamp"
)

// Name is the name of a pod's workload: that of its profile annotation, else that of the controller which owns it as
// its labels tell, else the pod's own. The author of a pod also writes its labels: text that cannot be a name is ignored.
func Name(pod string, labels, annotations map[string]string) string {
	if name := annotations[ProfileAnnotation]; IsName(name) {
		return name
	}
	if name := controller(pod, labels); IsName(name) {
		return name
	}
	return pod
}

// Alone says whether a pod belongs to no workload but itself: what is seen of it is of use to no other pod.
func Alone(pod string, labels, annotations map[string]string) bool {
	return !IsName(annotations[ProfileAnnotation]) && Name(pod, labels, annotations) == pod
}

// controller that owns a pod, as its labels tell.
func controller(pod string, labels map[string]string) string {
	switch {
	case labels[templateHash] != "":
		// DEPLOYMENT-HASH-SUFFIX
		name, _, found := strings.Cut(pod+"-", "-"+labels[templateHash]+"-")
		if !found {
			return ""
		}
		return name
	case labels[statefulPod] != "", labels[revisionHash] != "":
		// STATEFULSET-ORDINAL or DAEMONSET-SUFFIX
		return withoutLast(pod)
	case labels[cronSchedule] != "":
		// A CronJob's jobs are CRONJOB-MINUTE.
		return withoutLast(labels[jobName])
	}
	return labels[jobName]
}

func withoutLast(name string) string {
	if i := strings.LastIndexByte(name, '-'); i > 0 {
		return name[:i]
	}
	return name
}

// IsName says whether a text can be the name of an object of Kubernetes.
func IsName(text string) bool {
	if len(text) > maxName {
		return false
	}
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || !edge(label[0]) || !edge(label[len(label)-1]) {
			return false
		}
		for i := range len(label) {
			if !edge(label[i]) && label[i] != '-' {
				return false
			}
		}
	}
	return true
}

func edge(b byte) bool {
	return 'a' <= b && b <= 'z' || '0' <= b && b <= '9'
}
