package balancer

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/types"

	v1 "loxilb/api/v1"
)

// unapplied returns the services that the balancer has stored and its data path lacks, with the
// reason, by key. The balancer answers such a change with an error first, but the same change with
// success when it is sent again, since it is stored.
func (c *Client) unapplied(ctx context.Context) (map[string]string, error) {
	var list v1.StatusList
	err := c.do(ctx, http.MethodGet, "/status/objects?kind=service&failed=true", nil, &list)
	var status *StatusError
	switch {
	case errors.As(err, &status) && (isObjectError(err) || status.Status == http.StatusNotImplemented):
		return nil, nil // another version has no statuses
	case status != nil && isServerError(status.Status):
		return nil, busyError{err}
	}
	failed := map[string]string{}
	for i := range list.StatusAttr {
		failed[list.StatusAttr[i].Key] = list.StatusAttr[i].Error
	}
	return failed, err
}

// recordApplied records which services the data path has, of those that the balancer has stored. It
// requests their statuses only after an error.
func (m *member) recordApplied(ctx context.Context, list []entry, touched map[types.NamespacedName]bool) error {
	if !m.mayBeUnapplied {
		m.recordAccepted(list, touched)
		return nil
	}
	failed, err := m.Client.unapplied(ctx)
	if err != nil {
		return err
	}
	var applied []entry
	for _, e := range list {
		why, hasFailed := failed[e.key]
		if !hasFailed {
			applied = append(applied, e)
			continue
		}
		m.recordRefused(e, "it is stored, but the data path does not have it: "+why, touched)
		m.mu.Lock()
		m.existing.put(e.key, storedService{service: e.service})
		m.mu.Unlock()
	}
	m.recordAccepted(applied, touched)
	return nil
}
