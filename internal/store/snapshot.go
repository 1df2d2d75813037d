package store

import (
	"encoding/binary"
	"iter"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"loxilb/internal/lb"
)

// Snapshot is the state at one revision. It is immutable, and shares what did not change with its neighbours.
// The services it hands out share their Endpoints with it: don't write to them.
type Snapshot struct {
	revision  uint64
	services  *iradix.Tree[*entry] // by keyBytes
	names     *iradix.Tree[lb.Key] // by nameBytes, of the services that have a name
	seconds   *iradix.Tree[lb.Key] // by keyBytes of the keys that services have besides their own
	endpoints int                  // of all services together
	sources   int                  // the same
}

// entry is one service in a snapshot. It is never changed, only replaced.
type entry struct {
	owner   string
	service lb.Service
}

func emptySnapshot() *Snapshot {
	return &Snapshot{services: iradix.New[*entry](), names: iradix.New[lb.Key](), seconds: iradix.New[lb.Key]()}
}

// Revision counts the commits that changed something, over restarts too.
func (s *Snapshot) Revision() uint64 { return s.revision }

// Len is the number of services.
func (s *Snapshot) Len() int { return s.services.Len() }

// Endpoints is the number of endpoints of all services together.
func (s *Snapshot) Endpoints() int { return s.endpoints }

// Get finds a service by its key.
func (s *Snapshot) Get(k lb.Key) (lb.Service, bool) { return serviceOf(s.services.Get(keyBytes(k))) }

// ByName finds the services of a name, which is never "", ordered by key: the ports of one application share it.
func (s *Snapshot) ByName(name string) []lb.Service {
	var list []lb.Service
	s.names.Root().WalkPrefix(namePrefix(name), func(_ []byte, k lb.Key) bool {
		if service, ok := s.Get(k); ok {
			list = append(list, service)
		}
		return false
	})
	return list
}

// Owner is who wrote the service.
func (s *Snapshot) Owner(k lb.Key) (string, bool) { return ownerOf(s.services.Get(keyBytes(k))) }

// All yields the services ordered by key: VIP (IPv4 first), port, protocol.
func (s *Snapshot) All() iter.Seq[lb.Service] {
	return func(yield func(lb.Service) bool) {
		for e := range s.entries() {
			if !yield(e.service) {
				return
			}
		}
	}
}

func (s *Snapshot) entries() iter.Seq[*entry] { return walk(s.services.Root()) }

func walk(root *iradix.Node[*entry]) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		root.Walk(func(_ []byte, e *entry) bool { return !yield(e) })
	}
}

// vipBytes begins the keyBytes of all services of a VIP.
func vipBytes(k lb.Key) []byte { return keyBytes(k)[:1+16] }

func serviceOf(e *entry, ok bool) (lb.Service, bool) {
	if !ok {
		return lb.Service{}, false
	}
	return e.service, true
}

func ownerOf(e *entry, ok bool) (string, bool) {
	if !ok {
		return "", false
	}
	return e.owner, true
}

// nameBytes is a service's key in the tree of names: those of one name lie together, ordered by their keys.
func nameBytes(s *lb.Service) []byte { return append(namePrefix(s.Name), keyBytes(s.Key)...) }

// namePrefix ends with a byte that no name has.
func namePrefix(name string) []byte { return append([]byte(name), 0) }

// keyBytes is the key in the tree, ordered as lb.Key.Compare orders: family, 16 bytes of address, port, protocol,
// last port, mark.
// All are of one length, so none is another's prefix.
func keyBytes(k lb.Key) []byte {
	vip := k.VIP.As16()
	b := make([]byte, 0, len(vip)+10)
	b = append(b, byte(k.VIP.BitLen()))
	b = append(b, vip[:]...)
	b = binary.BigEndian.AppendUint16(b, k.Port)
	b = append(b, byte(k.Protocol))
	b = binary.BigEndian.AppendUint16(b, k.PortMax)
	return binary.BigEndian.AppendUint32(b, k.Mark)
}
