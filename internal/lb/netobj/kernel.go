package netobj

import "fmt"

// Kernel reads and changes the kernel's objects of one kind.
type Kernel[T any] interface {
	// All returns the kernel's objects by key, except those of dynamic protocols such as DHCP,
	// which remove them by themselves.
	All() (map[string][]T, error)
	// Make fails if a conflicting object exists. A missing interface is a *NoDeviceError.
	Make(T) error
	// Remove does nothing if the object does not exist.
	Remove(T) error
}

// Absent is a kind whose objects can be looked up one by one. The cost of All grows with their
// number.
type Absent[T any] interface {
	// Absent reports that nothing exists with the object's key. False: it may exist.
	Absent(T) bool
}

// Lookup is a kind whose objects can be read one by one.
type Lookup[T any] interface {
	// Lookup returns the kernel's objects with the object's key. Not known: only All can find out.
	Lookup(T) (have []T, known bool)
}

// Among is a kind that may have too many objects in the kernel to hold.
type Among[T any] interface {
	// Among is All for the keys of these objects. seen is the number of objects of the kind.
	Among(wanted []T) (have map[string][]T, seen int, err error)
}

// FindAll returns the existing objects with the keys of these.
func FindAll[T Object[T]](k Kernel[T], wanted []T) (have map[string][]T, seen int, err error) {
	if some, ok := k.(Among[T]); ok {
		return some.Among(wanted)
	}
	have, err = k.All()
	return have, len(have), err
}

// Find returns the existing objects with an object's key.
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

// Seen is a kind whose objects are shown in another form than users create them.
type Seen[T, S any] interface {
	Kernel[T]
	Seen() ([]S, error)
}

// Routes are the routes of the main table. There may be a million: EachSeen holds none of them.
type Routes interface {
	Kernel[Route]
	EachSeen(yield func(*SeenRoute) bool) error
}

// Neighbors are the hosts with known MAC addresses.
type Neighbors interface {
	Seen[Neighbor, Neighbor]
	Confirmed() ([]Neighbor, error) // neighbors that the kernel has confirmed as reachable
}

// Network is the kernel's network: the objects of each kind.
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
	Made      func(kind, key string) bool // whether loxilb has created the object
}

// Kinds returns the names of all kinds.
func Kinds() []string {
	return []string{AddressKind, RouteKind, NeighborKind, FDBKind, VLANKind, VLANMemberKind, VXLANKind, VXLANPeerKind}
}

// NoDeviceError reports that no interface has this name.
type NoDeviceError struct{ Name string }

func (e *NoDeviceError) Error() string { return fmt.Sprintf("there is no interface %s", e.Name) }

// ForeignError reports that an object with the same key exists that loxilb has not made.
type ForeignError struct{ Kind, Has string }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("the kernel has %s %s in its place, which loxilb has not made: delete that object first", e.Kind, e.Has)
}
