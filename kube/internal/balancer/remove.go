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

// remove deletes services. A service that the balancer does not delete does not
// prevent the deletion of others.
func (m *member) remove(ctx context.Context, keys []string, touched map[types.NamespacedName]bool) error {
	if len(m.stuck) > 0 {
		maps.DeleteFunc(m.stuck, func(key, _ string) bool { return !slices.Contains(keys, key) })
	}
	for len(keys) > 0 {
		n := min(len(keys), objectsAtOnce)
		if err := m.removeSome(ctx, keys[:n], touched); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// removeSome deletes services in one request. If the balancer refuses that, one of them may carry
// a session of its administrator: the others go nevertheless, and the balancer stays MASTER. That
// one is tried again in the next round.
func (m *member) removeSome(ctx context.Context, keys []string, touched map[types.NamespacedName]bool) error {
	specs := make([]json.RawMessage, 0, len(keys))
	for _, key := range keys {
		specs = append(specs, specOfKey(key))
	}
	result, err := m.Client.Apply(ctx, specs, true)
	var no *Refusal
	switch {
	case err == nil:
	case errors.As(err, &no) && isFailure(no.Status):
		return busyError{fmt.Errorf("delete %d services: %w", len(keys), err)}
	case !isVerdict(err):
		return fmt.Errorf("delete %d services: %w", len(keys), err)
	case len(keys) > 1:
		half := len(keys) / 2
		if err := m.removeSome(ctx, keys[:half], touched); err != nil {
			return err
		}
		return m.removeSome(ctx, keys[half:], touched)
	default:
		if why := err.Error(); m.stuck[keys[0]] != why {
			m.stuck[keys[0]] = why
			m.fleet.Log.Info("balancer does not delete a service", "balancer", m.URL, "service", keys[0], "reason", why)
			m.fleet.Stuck(m.existing.entries[keys[0]].service, fmt.Sprintf("%s does not delete %s: %s", m.URL, keys[0], why))
		}
		return nil
	}
	m.advance(result.Revision)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		delete(m.stuck, key)
		touched[m.existing.remove(key)] = true
	}
	return nil
}
