package netobj

import "fmt"

// Kernel is the objects of one kind that the kernel has.
type Kernel[T any] interface {
	// All are those that the kernel has, by key: what dynamic protocols found out, and forget by
	// themselves, is not among them.
	All() (map[string][]T, error)
	// Make fails if something is in the way. A missing interface is a *NoDeviceError.
	Make(T) error
	// Remove does nothing if it is not there.
	Remove(T) error
}

// Absent is a kind of which one object can be looked up. All costs as much as there are.
type Absent[T any] interface {
	// Absent says that nothing is there by the object's key. False: it may be.
	Absent(T) bool
}

// Lookup is a kind of which one object can be read without the others.
type Lookup[T any] interface {
	// Lookup returns what the kernel has by the object's key. Not known: only All says it.
	Lookup(T) (have []T, known bool)
}

// Among is a kind whose objects in the kernel may be too many to hold.
type Among[T any] interface {
	// Among is All for the keys of these objects. seen is how many there are of the kind.
	Among(wanted []T) (have map[string][]T, seen int, err error)
}

// FindAll is what there is by the keys of objects.
func FindAll[T Object[T]](k Kernel[T], wanted []T) (have map[string][]T, seen int, err error) {
	if some, ok := k.(Among[T]); ok {
		return some.Among(wanted)
	}
	have, err = k.All()
	return have, len(have), err
}

// Find is what there is by an object's key.
func Find[T Object[T]](k Kernel[T], o T) ([]T, error) {
	if quick, ok := k.(Lookup[T]); ok {
		if have, known := quick.Lookup(o); known {
			return have, nil
		}
	}
	if quick, ok := k.(Absent[T]); ok && quick.Absent(o) {
		return nil, nil
	}
	have, _, err := FindAll(k, []T{o})
	return have[o.Key()], err
}

// Seen is a kind that is shown otherwise than it is wanted.
type Seen[T, S any] interface {
	Kernel[T]
	Seen() ([]S, error)
}

// Routes are the routes of the main table. There may be a million: EachSeen holds none of them.
type Routes interface {
	Kernel[Route]
	EachSeen(yield func(*SeenRoute) bool) error
}

// Neighbors are the hosts whose MAC addresses are known.
type Neighbors interface {
	Seen[Neighbor, Neighbor]
	Confirmed() ([]Neighbor, error) // that are there now, as far as the kernel knows
}

// Network is the kernel's network: what there is of each kind.
type Network struct {
	Devices interface {
		HasDevice(name string) (bool, error)
		Ports() ([]Port, error)
	}
	Addresses Seen[Address, DeviceAddresses]
	Routes    Routes
	Neighbors Neighbors
	FDBs      Seen[FDB, FDB]
	VLANs     Seen[VLAN, SeenVLAN]
	Members   Kernel[VLANMember]
	VXLANs    Seen[VXLAN, SeenVXLAN]
	Peers     Kernel[VXLANPeer]
	Made      func(kind, key string) bool // whether loxilb has made it, and not found it
}

// Kinds are the names of all kinds.
func Kinds() []string {
	return []string{AddressKind, RouteKind, NeighborKind, FDBKind, VLANKind, VLANMemberKind, VXLANKind, VXLANPeerKind}
}

// NoDeviceError says that there is no interface of a name.
type NoDeviceError struct{ Name string }

func (e *NoDeviceError) Error() string { return fmt.Sprintf("there is no interface %s", e.Name) }

// ForeignError says that something that loxilb has not made is in the way.
type ForeignError struct{ Kind, Has string }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("the kernel has %s %s, which loxilb has not made, in its place: delete that first", e.Kind, e.Has)
}
