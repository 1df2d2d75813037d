package balancer

import (
	"context"
	"net/url"
	"slices"
	"sync"
	"time"
)

// replacementTime is how long a pod may be missing in the list of balancers while it is replaced.
// Afterwards the list has the new pod, whose daemon may be starting.
const replacementTime = 5 * time.Second

// probeDeparted connects to the nodes of MASTERs whose pods were deleted. While a daemon is
// replaced, its node refuses connections. A node that was drained and shut down does not answer:
// its VIPs must not wait for a daemon.
func (e *election) probeDeparted(ctx context.Context, all []*member) {
	departed := map[string]bool{}
	for _, url := range e.masters {
		departed[url] = true
	}
	for _, m := range all {
		delete(departed, m.URL)
	}
	ctx, cancel := context.WithTimeout(ctx, hangAfter)
	defer cancel()
	var mu sync.Mutex
	var probes sync.WaitGroup
	missed := map[string]int{}
	for url := range departed {
		probes.Go(func() {
			if !isAlive(ctx, url) {
				mu.Lock()
				defer mu.Unlock()
				missed[url] = e.missedProbes[url] + 1
			}
		})
	}
	probes.Wait()
	e.missedProbes = missed
}

// hasReturned reports whether a balancer answers that did not answer when the election began. It
// was not asked for its roles, so it may be MASTER.
func hasReturned(all, answered []*member) bool {
	return slices.ContainsFunc(all, func(m *member) bool { return m.answers() && !slices.Contains(answered, m) })
}

// mayBeReplaced reports whether the pod of an instance's MASTER may be missing because it is being
// replaced, as in an upgrade of controller and balancers: all listed balancers answer, and are
// BACKUP. If the node were dead, its pod would still be listed, and not answer.
func (e *election) mayBeReplaced(all []*member, states roleStates, instance string) bool {
	if slices.ContainsFunc(all, func(m *member) bool { return states[m.URL][instance] != backup }) {
		return false
	}
	if e.onlyBackupsSince.IsZero() {
		e.onlyBackupsSince = time.Now()
	}
	return time.Since(e.onlyBackupsSince) < replacementTime
}

// isAlive reports whether the node of a balancer accepts or refuses connections.
func isAlive(ctx context.Context, balancer string) bool {
	u, err := url.Parse(balancer)
	if err != nil {
		return false
	}
	err = connect(ctx, u.Host)
	return err == nil || isAliveError(err)
}
