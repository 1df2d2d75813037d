package tables

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// attached has the policers and mirrors of services.
type attached struct {
	wanted map[bpf.TcServiceKey]bpf.TcAttachments // including missing services
	rows   map[uint32]bpf.TcAttachments           // as the map has them
}

// AttachToServices sets the attachments of services; those of missing services take effect when
// these appear. It returns whether a service gained its first attachment or lost its last one: then
// their connections must look up their next hops.
func (t *Tables) AttachToServices(want map[bpf.TcServiceKey]bpf.TcAttachments) (changed bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.attached.wanted = maps.Clone(want)
	rows := map[uint32]bpf.TcAttachments{}
	for key, a := range want {
		if s := t.services[key]; s != nil {
			rows[s.id] = a
		}
	}
	var errs []error
	for id := range t.attached.rows {
		if _, stays := rows[id]; !stays {
			changed = true
			errs = append(errs, t.putAttachments(id, bpf.TcAttachments{}))
		}
	}
	for id, a := range rows {
		if _, had := t.attached.rows[id]; !had {
			changed = true
		}
		errs = append(errs, t.putAttachments(id, a))
	}
	return changed, errors.Join(errs...)
}

// putAttachments writes a service's attachments.
func (t *Tables) putAttachments(id uint32, want bpf.TcAttachments) error {
	if t.attached.rows[id] == want {
		return nil
	}
	if want == (bpf.TcAttachments{}) {
		if err := t.maps.AttachedServices.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("take policers and mirrors from a service: %w", err)
		}
		delete(t.attached.rows, id)
		return nil
	}
	if err := t.maps.AttachedServices.Put(id, want); err != nil {
		return fmt.Errorf("attach policers and mirrors to a service: %w", full(err))
	}
	if t.attached.rows == nil {
		t.attached.rows = map[uint32]bpf.TcAttachments{}
	}
	t.attached.rows[id] = want
	return nil
}

// adoptAttachments reads the attachments of an earlier process. They stay until AttachToServices.
func (t *Tables) adoptAttachments() error {
	t.attached.rows = map[uint32]bpf.TcAttachments{}
	err := rows.EachBatch(t.maps.AttachedServices, rows.All, func(ids []uint32, all []bpf.TcAttachments) {
		for i, id := range ids {
			t.attached.rows[id] = all[i]
		}
	})
	if err != nil {
		return fmt.Errorf("read policers and mirrors of services: %w", err)
	}
	return nil
}
