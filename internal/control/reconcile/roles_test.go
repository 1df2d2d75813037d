package reconcile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

// role sets the node's role for an instance, and waits until it is in effect.
func (r *rig) role(instance string, role lb.Role) {
	r.t.Helper()
	r.wait(r.commit(func(tx *store.Tx) error {
		if role == lb.RoleUnknown {
			return tx.Delete(r.state.Instances.ID(instance))
		}
		return r.state.Instances.Put(tx, lb.Instance{Name: instance, Role: role})
	}))
}

// TestRoles checks that a change of role counts as applied once the VIPs are acquired or released,
// and that services in the data path are not written again.
func TestRoles(t *testing.T) {
	t.Parallel()
	const web, both = "10.0.0.1:80/tcp endpoints=10.1.0.1:80", "10.0.0.2:%s/tcp endpoints=10.1.0.1:80 name=x:%s"
	service := func(port, instance string) string {
		return strings.Replace(strings.Replace(both, "%s", port, 1), "%s", instance, 1)
	}
	r := newRig(t, newFakeKernel(), web, service("80", "one"), service("81", "two"))
	want := func(first, second bool) {
		t.Helper()
		r.mu.Lock()
		defer r.mu.Unlock()
		if got1, got2 := r.vips[netip.MustParseAddr("10.0.0.1")], r.vips[netip.MustParseAddr("10.0.0.2")]; got1 != first || got2 != second {
			t.Errorf("owned are %v, %v; want %v, %v", got1, got2, first, second)
		}
	}
	want(true, true)
	r.drainEvents()
	r.role(lb.DefaultInstance, lb.RoleBackup)
	want(false, true)
	r.role("one", lb.RoleBackup)
	want(false, true) // the other instance has this VIP, too
	r.role("two", lb.RoleStop)
	want(false, false)
	r.wait(r.put("10.0.0.1:81/tcp endpoints=10.1.0.1:80")) // of an instance in role BACKUP
	want(false, false)
	r.role("one", lb.RoleMaster)
	want(false, true)
	r.wait(r.delete("10.0.0.2:80/tcp"))
	want(false, false)
	r.role("two", lb.RoleUnknown)
	want(false, true)
	r.role(lb.DefaultInstance, lb.RoleMaster)
	want(true, true)
	r.mu.Lock()
	notified := strings.Join(r.roleCalls, ", ")
	r.mu.Unlock()
	if want := "llb-inst0 BACKUP, one BACKUP, two STOP, one MASTER, two NOT_DEFINED, llb-inst0 MASTER"; notified != want {
		t.Errorf("notified of roles: %s\nwant %s", notified, want)
	}
	for _, e := range r.drainEvents() {
		if strings.HasPrefix(e, "put 10.0.0.1:80") {
			t.Errorf("the service was written again: %s", e)
		}
	}
	if s := r.status("instance", lb.DefaultInstance); s.Err != nil || s.Applied == 0 {
		t.Errorf("got %+v, want s.Err == nil, s.Applied != 0", s)
	}
}

// TestRoleWithoutVIP checks that services fail and are retried if their VIP cannot be acquired when
// the node becomes the MASTER.
func TestRoleWithoutVIP(t *testing.T) {
	t.Parallel()
	r := newRig(t, newFakeKernel(), web)
	vip := netip.MustParseAddr("10.0.0.1")
	r.role(lb.DefaultInstance, lb.RoleBackup)
	r.failOn("acquire [10.0.0.1]", errBroken)
	r.role(lb.DefaultInstance, lb.RoleMaster)
	r.eventually("the service fails", func() bool { return r.status("service", "10.0.0.1:80/tcp").Err != nil })
	r.failOn("", nil)
	r.eventually("owned", func() bool { return r.vips[vip] })
}

// TestManyRoles checks that a role changes quickly with any number of instances, VIPs and services.
func TestManyRoles(t *testing.T) {
	t.Parallel()
	const instances, services = 1000, 10000
	w := newFakeKernel()
	list := make([]string, services)
	for i := range list {
		list[i] = fmt.Sprintf("10.1.%d.%d:80/tcp endpoints=10.200.0.1:80 name=x:i%d", i/250, 1+i%250, i%instances)
	}
	r := newRig(t, w, list...)
	r.wait(r.commit(func(tx *store.Tx) error {
		for i := range instances {
			if err := r.state.Instances.Put(tx, lb.Instance{Name: fmt.Sprint("i", i), Role: lb.RoleBackup}); err != nil {
				return err
			}
		}
		return nil
	}))
	began := time.Now()
	r.role("i7", lb.RoleMaster)
	took := time.Since(began)
	r.mu.Lock()
	owned := 0
	for _, isOwned := range r.vips {
		if isOwned {
			owned++
		}
	}
	r.mu.Unlock()
	if owned != services/instances || took > time.Second {
		t.Errorf("%d VIPs are owned, want %d; it took %v", owned, services/instances, took)
	}
	t.Log(took)
}

// TestDependents checks that a role with a source, and a drain, are applied once the services have
// them, including services that are not applied yet.
func TestDependents(t *testing.T) {
	t.Parallel()
	const services = 3 * batchSize
	w := newFakeKernel()
	r := newStoppedRig(t, w)
	list := make([]string, services)
	for i := range list {
		list[i] = fmt.Sprintf("10.1.%d.%d:80/tcp mode=fullnat endpoints=10.2.0.1:80,10.2.0.2:80", i/250, 1+i%250)
	}
	r.put(list...)
	clusterVIP, drain := netip.MustParseAddr("10.9.9.9"), lb.Drain{Addr: netip.MustParseAddr("10.2.0.1"), Rate: 1}
	for _, c := range []struct {
		kind, key string
		deleted   bool
		has       func(datapath.Change) bool
		edit      func(*store.Tx) error
	}{
		{
			kinds.DrainName, drain.Key(), false,
			func(c datapath.Change) bool { return c.Table.Endpoints[0].Weight == 0 },
			func(tx *store.Tx) error { return r.state.Drains.Put(tx, drain) },
		},
		{
			kinds.InstanceName, lb.DefaultInstance, false,
			func(c datapath.Change) bool { return slices.Equal(c.Table.SNAT, []bpf.TcIpAddr{bpf.Addr(clusterVIP)}) },
			func(tx *store.Tx) error {
				return r.state.Instances.Put(tx, lb.Instance{Role: lb.RoleMaster, VIP: clusterVIP})
			},
		},
		{
			kinds.DrainName, drain.Key(), true,
			func(c datapath.Change) bool { return c.Table.Endpoints[0].Weight > 0 },
			func(tx *store.Tx) error { return tx.Delete(r.state.Drains.ID(drain.Key())) },
		},
	} {
		done, late := map[bpf.TcServiceKey]bool{}, 0
		w.mu.Lock()
		w.onWrite = func(change datapath.Change) {
			done[change.Key] = c.has(change)
			if s, known := r.statuses.Get(status.ID{Kind: c.kind, Key: c.key}); !known || !c.deleted && s.Applied == s.Desired {
				late++
			}
		}
		w.mu.Unlock()
		change := r.commit(c.edit)
		if r.feeds.Load() == 0 {
			r.start() // the first change precedes the services
		}
		r.wait(change)
		w.mu.Lock()
		for key, has := range done {
			if !has {
				t.Errorf("%s %s: service %s lacks it", c.kind, c.key, key)
			}
		}
		if len(done) != services || late > 0 {
			t.Errorf("%s %s: %d services were written before it was applied, want %d; %d after it", c.kind, c.key, len(done), services, late)
		}
		w.mu.Unlock()
	}
	if _, known := r.statuses.Get(status.ID{Kind: kinds.DrainName, Key: drain.Key()}); known {
		t.Error("the deleted drain has a status")
	}
}
