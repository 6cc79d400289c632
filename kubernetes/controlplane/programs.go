//go:build programs

// Package controlplane names the programs against which internal/cluster tests: a module of its own, for nothing that is
// shipped needs them. scripts/test-kubernetes --full builds them.
package controlplane

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
