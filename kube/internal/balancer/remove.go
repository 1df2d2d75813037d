package balancer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// remove deletes services. If the balancer refuses to delete some, the others are deleted
// nevertheless.
func (m *member) remove(ctx context.Context, keys []string, touched map[types.NamespacedName]bool) error {
	if len(m.undeletable) > 0 {
		maps.DeleteFunc(m.undeletable, func(key, _ string) bool { return !slices.Contains(keys, key) })
	}
	for len(keys) > 0 {
		n := min(len(keys), maxObjects)
		if err := m.removeBatch(ctx, keys[:n], touched); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// removeBatch deletes services in one request. If the balancer refuses, since one of them carries a
// session of its administrator for instance, it divides the request until only such services
// remain. The next synchronization tries these again.
func (m *member) removeBatch(ctx context.Context, keys []string, touched map[types.NamespacedName]bool) error {
	specs := make([]json.RawMessage, 0, len(keys))
	for _, key := range keys {
		specs = append(specs, specOfKey(key))
	}
	result, err := m.Client.Apply(ctx, specs, true)
	var status *StatusError
	switch {
	case err == nil:
	case errors.As(err, &status) && isServerError(status.Status):
		return busyError{fmt.Errorf("delete %d services: %w", len(keys), err)}
	case !isObjectError(err):
		return fmt.Errorf("delete %d services: %w", len(keys), err)
	case len(keys) > 1:
		half := len(keys) / 2
		if err := m.removeBatch(ctx, keys[:half], touched); err != nil {
			return err
		}
		return m.removeBatch(ctx, keys[half:], touched)
	default:
		if why := err.Error(); m.undeletable[keys[0]] != why {
			m.undeletable[keys[0]] = why
			m.fleet.Log.Info("balancer does not delete a service", "balancer", m.URL, "service", keys[0], "reason", why)
			m.fleet.Stuck(m.existing.entries[keys[0]].service, fmt.Sprintf("%s does not delete %s: %s", m.URL, keys[0], why))
		}
		return nil
	}
	m.advanceRevision(result.Revision)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		delete(m.undeletable, key)
		touched[m.existing.remove(key)] = true
	}
	return nil
}
