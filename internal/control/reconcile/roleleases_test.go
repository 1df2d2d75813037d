package reconcile

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// instanceLeases is an InstanceLeases in memory, on a machine whose uptime is the time since began.
type instanceLeases struct {
	began time.Time
	ends  map[string]time.Duration
}

func (l *instanceLeases) Own(instance string, until time.Time) {
	if l.ends[instance] = 0; !until.IsZero() {
		l.ends[instance] = until.Sub(l.began)
	}
}

func (l *instanceLeases) Keep(instances []string) {
	maps.DeleteFunc(l.ends, func(key string, _ time.Duration) bool { return !slices.Contains(instances, key) })
}

func (l *instanceLeases) LeaseEnd(instance string) (time.Duration, bool) {
	end, exists := l.ends[instance]
	return end, exists
}

func (l *instanceLeases) uptime() time.Duration { return time.Since(l.began) }

// TestRoleLeases checks that a role with a lease lasts while this process runs, for the lease after
// its end, and no longer.
func TestRoleLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease = 30 * time.Second
		r := newStoppedRig(t, newFakeKernel())
		leases := &instanceLeases{time.Now(), map[string]time.Duration{"gone": time.Hour}}
		changes := 0
		process := func(runs time.Duration) { // starts, runs for a time, and is killed
			l := NewRoleLeases(r.state, leases, "rest", func() { changes++ }, r.services.Observers)
			l.uptime = leases.uptime
			l.Begin()
			ctx, kill := context.WithCancel(t.Context())
			go l.Run(ctx)
			time.Sleep(runs)
			last := maps.Clone(leases.ends)
			kill()
			synctest.Wait()
			leases.ends = last // a killed process does not renew
		}
		set := func(name string, role lb.Role, lease time.Duration) {
			t.Helper()
			r.commit(func(tx *store.Tx) error {
				return r.state.Instances.Put(tx, lb.Instance{Name: name, Role: role, Lease: lease})
			})
		}
		want := func(when, name string, role lb.Role, left time.Duration) {
			t.Helper()
			one := r.state.Instances.Assigned(r.state.Snapshot())[name]
			if got := leases.ends[name] - leases.uptime(); one.Role != role || left >= 0 && got.Round(time.Second) != left {
				t.Errorf("%s: %s is %s for %v, want %s for %v", when, name, one.Role, got, role, left)
			}
		}
		set("a", lb.RoleMaster, lease)
		set("b", lb.RoleBackup, lease)
		set("c", lb.RoleMaster, 0)
		leases.Own("a", time.Now().Add(lease))    // of an earlier process
		process(time.Hour + 900*time.Millisecond) // renewed every second
		want("after an hour", "a", lb.RoleMaster, lease-time.Second)
		if len(leases.ends) != 2 || leases.ends["b"] != 0 || changes != 1 {
			t.Errorf("leases end at %v, after %d changes", leases.ends, changes)
		}
		time.Sleep(lease - 2*time.Second)
		process(900 * time.Millisecond)
		want("within the lease", "a", lb.RoleMaster, lease-time.Second)
		time.Sleep(lease)
		process(2 * time.Second)
		want("after the lease", "a", lb.RoleBackup, -1)
		want("without a lease", "c", lb.RoleMaster, -1)
		if leases.ends["a"] != 0 {
			t.Errorf("the lease of a BACKUP ends at %v", leases.ends["a"])
		}
		set("a", lb.RoleMaster, lease)
		process(time.Second)
		want("set again", "a", lb.RoleBackup, -1) // nothing renewed it while no process ran
		delete(leases.ends, "a")
		set("a", lb.RoleMaster, lease)
		process(time.Second)
		want("without a trace of it in the kernel", "a", lb.RoleBackup, -1)
	})
}
