// Package manifests tests the Helm chart and the manifests that are generated from it.
package manifests
