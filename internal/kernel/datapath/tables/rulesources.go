package tables

import (
	"errors"
	"net/netip"
	"slices"

	"loxilb/internal/kernel/datapath/bpf"
)

// Connections to which firewall rules give a source are those of a service, as all connections are:
// it has the source's address, a protocol that no packet has, and one endpoint, by which they are
// counted. Nobody outside of here sees it.

// ofRules distinguishes such a service from those of users.
func ofRules(key bpf.TcServiceKey) bool { return key.Protocol == 0 }

func ruleSourceKey(a netip.Addr) bpf.TcServiceKey { return bpf.TcServiceKey{Vip: bpf.Addr(a)} }

// PutRuleSources makes services that stand for the sources of rules, and returns the endpoints.
func (t *Tables) PutRuleSources(list []netip.Addr) (endpoints []uint32, err error) {
	for _, a := range list {
		key := ruleSourceKey(a)
		table := bpf.ServiceTable{
			Key: key, Name: "snat " + a.String(), Mode: uint8(bpf.TcServiceModeMODE_ONEARM),
			Endpoints: []bpf.EndpointTable{{Addr: bpf.Addr(netip.IPv4Unspecified()), Source: bpf.Addr(a)}},
		}
		if err := t.applyOne(Change{Key: key, Table: &table}); err != nil {
			return nil, err
		}
		t.mu.RLock()
		endpoints = append(endpoints, t.services[key].order[0].id)
		t.mu.RUnlock()
	}
	return endpoints, nil
}

// TrimRuleSources removes those that no rule uses any more. Their connections end.
func (t *Tables) TrimRuleSources(keep []netip.Addr) error {
	t.mu.RLock()
	var gone []bpf.TcServiceKey
	for key := range t.services {
		if ofRules(key) && !slices.Contains(keep, key.Vip.Netip()) {
			gone = append(gone, key)
		}
	}
	t.mu.RUnlock()
	var errs []error
	for _, key := range gone {
		errs = append(errs, t.applyOne(Change{Key: key}))
	}
	return errors.Join(errs...)
}
