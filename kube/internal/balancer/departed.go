package balancer

import (
	"context"
	"net/url"
	"slices"
	"sync"
	"time"
)

// absence is how long a pod may be missing in the list of balancers while it is replaced. Then the
// new one is there, and its daemon may be restarting.
const absence = 5 * time.Second

// askDeparted asks the nodes of MASTERs whose pods were deleted whether they are alive. While a
// daemon is replaced, its node refuses connections. A node that was drained and shut down answers
// nothing: its VIPs must not wait for a daemon.
func (e *election) askDeparted(ctx context.Context, all []*member) {
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
	var asking sync.WaitGroup
	unheard := map[string]int{}
	for url := range departed {
		asking.Go(func() {
			if !isAlive(ctx, url) {
				mu.Lock()
				defer mu.Unlock()
				unheard[url] = e.unheard[url] + 1
			}
		})
	}
	asking.Wait()
	e.unheard = unheard
}

// hasReturned reports whether a balancer answers that did not when the election began. It was not
// asked for its roles, and may be MASTER: the next election knows.
func hasReturned(all, answered []*member) bool {
	return slices.ContainsFunc(all, func(m *member) bool { return m.answers() && !slices.Contains(answered, m) })
}

// mayBeAbsent reports whether the MASTER of an instance may have no pod just now, as in an upgrade
// of this controller and of the balancers: all others answer, and are BACKUP. A dead node still has
// its pod, and does not answer.
func (e *election) mayBeAbsent(all []*member, states roleStates, instance string) bool {
	if slices.ContainsFunc(all, func(m *member) bool { return states[m.URL][instance] != backup }) {
		return false
	}
	if e.backups.IsZero() {
		e.backups = time.Now()
	}
	return time.Since(e.backups) < absence
}

// isAlive reports whether the node of a balancer accepts or refuses connections.
func isAlive(ctx context.Context, balancer string) bool {
	u, err := url.Parse(balancer)
	if err != nil {
		return false
	}
	err = connect(ctx, u.Host)
	return err == nil || isRefusal(err)
}
