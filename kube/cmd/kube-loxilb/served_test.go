package main

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"loxilb/kube/api/v1alpha1"
)

// failingMapper is the mapper of an apiserver that does not answer.
type failingMapper struct {
	meta.RESTMapper
	err error
}

func (m failingMapper) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, m.err
}

// TestIsServed checks that an apiserver which does not answer once does not count as a cluster
// without the custom resource: the controller would ignore all pools until its next start.
func TestIsServed(t *testing.T) {
	t.Parallel()
	kind := v1alpha1.GroupVersion().WithKind("AddressPool")
	with := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion()})
	without := meta.NewDefaultRESTMapper(nil)
	with.Add(kind, meta.RESTScopeRoot)
	lost := errors.New("connection refused")
	for _, tc := range []struct {
		what   string
		mapper meta.RESTMapper
		served bool
		err    error
	}{
		{"served", with, true, nil},
		{"not served", without, false, nil},
		{"no answer", failingMapper{without, lost}, false, lost},
	} {
		if got, err := isServed(tc.mapper, kind); got != tc.served || !errors.Is(err, tc.err) {
			t.Errorf("%s: got %v, %v, want %v, error %v", tc.what, got, err, tc.served, tc.err)
		}
	}
}
