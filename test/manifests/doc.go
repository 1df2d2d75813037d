// Package manifests tests what is applied to Kubernetes: the chart, and the manifests that are made
// of it.
package manifests
