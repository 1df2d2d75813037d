package tables

import (
	"fmt"
	"maps"

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
	byID := map[uint32]bpf.TcAttachments{}
	for key, a := range want {
		if s := t.services[key]; s != nil {
			byID[s.id] = a
		}
	}
	changed, err = rows.Sync(t.maps.AttachedServices, t.attached.rows, byID)
	if err != nil {
		err = fmt.Errorf("attach policers and mirrors to services: %w", full(err))
	}
	return changed, err
}

// putAttachments writes a service's attachments.
func (t *Tables) putAttachments(id uint32, want bpf.TcAttachments) error {
	if t.attached.rows[id] == want {
		return nil
	}
	if want == (bpf.TcAttachments{}) {
		if err := rows.Delete(t.maps.AttachedServices, id); err != nil {
			return fmt.Errorf("take policers and mirrors from a service: %w", err)
		}
		delete(t.attached.rows, id)
		return nil
	}
	if err := t.maps.AttachedServices.Put(id, want); err != nil {
		return fmt.Errorf("attach policers and mirrors to a service: %w", full(err))
	}
	t.attached.rows[id] = want
	return nil
}

// adoptAttachments reads the attachments of an earlier process. They stay until AttachToServices.
func (t *Tables) adoptAttachments() error {
	var err error
	if t.attached.rows, err = rows.Read[uint32, bpf.TcAttachments](t.maps.AttachedServices); err != nil {
		return fmt.Errorf("read policers and mirrors of services: %w", err)
	}
	return nil
}
