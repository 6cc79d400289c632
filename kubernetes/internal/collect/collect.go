// Package collect removes profiles of workloads that do not run any more.
package collect

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"cotenant.dev/kubernetes/api/v1alpha1"
)

// page is how many profiles are read at once.
const page = 500

// Collect removes the profiles that no node has seen used for so long, but for those that people have written; how many
// those were.
func Collect(ctx context.Context, client dynamic.Interface, unused time.Duration, now time.Time) (removed int, err error) {
	profiles, next := client.Resource(v1alpha1.WorkloadProfileResource), ""
	var failed []error
	for {
		list, err := profiles.List(ctx, metav1.ListOptions{Limit: page, Continue: next})
		if err != nil {
			return removed, errors.Join(append(failed, err)...)
		}
		for _, object := range list.Items {
			var profile v1alpha1.WorkloadProfile
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &profile); err != nil {
				failed = append(failed, fmt.Errorf("%s/%s: %w", object.GetNamespace(), object.GetName(), err))
				continue
			}
			if now.Sub(lastUsed(profile)) < unused || len(profile.Spec.Resources) > 0 {
				continue
			}
			// Only as it was read: if it has changed meanwhile, it is in use.
			uid, version := object.GetUID(), object.GetResourceVersion()
			as := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
			err := profiles.Namespace(object.GetNamespace()).Delete(ctx, object.GetName(), as)
			switch {
			case err == nil:
				removed++
			case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
				failed = append(failed, err)
			}
		}
		if next = list.GetContinue(); next == "" {
			return removed, errors.Join(failed...)
		}
	}
}

// lastUsed is when a node saw the workload last, else when its profile was made.
func lastUsed(profile v1alpha1.WorkloadProfile) time.Time {
	last := profile.CreationTimestamp.Time
	for _, part := range profile.Status.Nodes {
		if part.ObservedAt.After(last) {
			last = part.ObservedAt.Time
		}
	}
	return last
}
