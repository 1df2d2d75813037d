package balancer

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/types"

	v1 "loxilb/api/v1"
)

// unapplied returns why the data path has not taken services that the balancer has stored, by key.
// A balancer answers a change by an error then, and the same change again by success: it is stored.
func (c *Client) unapplied(ctx context.Context) (map[string]string, error) {
	var list v1.StatusList
	err := c.do(ctx, http.MethodGet, "/status/objects?kind=service&failed=true", nil, &list)
	if errors.As(err, new(*Refusal)) {
		return nil, nil // another version has no statuses
	}
	failed := map[string]string{}
	for i := range list.StatusAttr {
		failed[list.StatusAttr[i].Key] = list.StatusAttr[i].Error
	}
	return failed, err
}

// acceptApplied accepts services that the balancer has stored, except those its data path has
// refused. It asks for them only after an error.
func (m *member) acceptApplied(ctx context.Context, list []entry, touched map[types.NamespacedName]bool) error {
	if !m.doubtful {
		m.accept(list, touched)
		return nil
	}
	failed, err := m.Client.unapplied(ctx)
	if err != nil {
		return err
	}
	good := list[:0:0]
	for _, e := range list {
		why, no := failed[e.key]
		if !no {
			good = append(good, e)
			continue
		}
		m.refuse(e, "it is stored, but the data path does not have it: "+why, touched)
		m.mu.Lock()
		m.existing.put(e.key, present{service: e.service})
		m.mu.Unlock()
	}
	m.accept(good, touched)
	return nil
}
