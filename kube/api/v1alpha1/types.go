// Package v1alpha1 defines the custom resources of kube-loxilb.
package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion returns the API group and version of the custom resources.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "loxilb.io", Version: "v1alpha1"}
}

// AddToScheme registers the types with a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &AddressPool{}, &AddressPoolList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}

// AddressPool is a set of addresses for Services.
type AddressPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AddressPoolSpec   `json:"spec"`
	Status AddressPoolStatus `json:"status,omitempty"`
}

// AddressPoolList is a list of pools.
type AddressPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressPool `json:"items"`
}

// AddressPoolSpec selects addresses, and the Services that may use them.
type AddressPoolSpec struct {
	Addresses       []string              `json:"addresses"`                 // prefixes, ranges, addresses
	AutoAssign      *bool                 `json:"autoAssign,omitempty"`      // for Services that select no pool; nil: true
	Sharing         string                `json:"sharing,omitempty"`         // Never, Key, Always; empty: Key
	Priority        int32                 `json:"priority,omitempty"`        // pools with a higher priority are used first
	ServiceSelector *metav1.LabelSelector `json:"serviceSelector,omitempty"` // nil: all Services
	Namespaces      []string              `json:"namespaces,omitempty"`      // empty: all
}

// AddressPoolStatus is the usage of a pool, and whether it can be used.
type AddressPoolStatus struct {
	IPv4       *Usage             `json:"ipv4,omitempty"`
	IPv6       *Usage             `json:"ipv6,omitempty"`
	Services   int                `json:"services"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Usage counts addresses.
type Usage struct {
	Total int64 `json:"total"` // at most 2^63-1
	Used  int64 `json:"used"`
	Free  int64 `json:"free"`
}

// DeepCopyObject implements runtime.Object.
func (p *AddressPool) DeepCopyObject() runtime.Object {
	out := *p
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec = p.Spec.deepCopy()
	out.Status = p.Status.deepCopy()
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *AddressPoolList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]AddressPool, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*AddressPool)
	}
	return &out
}

func (s AddressPoolSpec) deepCopy() AddressPoolSpec {
	s.Addresses = slices.Clone(s.Addresses)
	s.Namespaces = slices.Clone(s.Namespaces)
	if s.AutoAssign != nil {
		auto := *s.AutoAssign
		s.AutoAssign = &auto
	}
	s.ServiceSelector = s.ServiceSelector.DeepCopy()
	return s
}

func (s AddressPoolStatus) deepCopy() AddressPoolStatus {
	for _, u := range []**Usage{&s.IPv4, &s.IPv6} {
		if *u != nil {
			one := **u
			*u = &one
		}
	}
	conditions := make([]metav1.Condition, len(s.Conditions))
	for i := range s.Conditions {
		s.Conditions[i].DeepCopyInto(&conditions[i])
	}
	s.Conditions = conditions
	return s
}
