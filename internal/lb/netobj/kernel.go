package netobj

import "fmt"

// Kernel reads and changes the kernel's objects of one kind.
type Kernel[T any] interface {
	// All returns the kernel's objects by key, except objects of dynamic protocols such as
	// DHCP: these protocols remove them.
	All() (map[string][]T, error)
	// Make fails if a conflicting object exists. A missing interface is a *NoDeviceError.
	Make(T) error
	// Remove does nothing if the object does not exist.
	Remove(T) error
}

// Absent is implemented by kinds that can check for a single object. The cost of All grows with
// their number.
type Absent[T any] interface {
	// Absent reports whether certainly no object exists with this object's key.
	Absent(T) bool
}

// Lookup is implemented by kinds that can read a single object.
type Lookup[T any] interface {
	// Lookup returns the kernel's objects with this object's key. known is false if only All
	// can find them.
	Lookup(T) (have []T, known bool)
}

// Subset is implemented by kinds with possibly too many objects to hold in memory.
type Subset[T any] interface {
	// Subset is All, restricted to the keys of these objects. total is the number of all
	// objects.
	Subset(wanted []T) (have map[string][]T, total int, err error)
}

// FindAll returns the kernel's objects with the keys of wanted. total is the number of all objects
// of the kind.
func FindAll[T Object[T]](k Kernel[T], wanted []T) (have map[string][]T, total int, err error) {
	if some, ok := k.(Subset[T]); ok {
		return some.Subset(wanted)
	}
	have, err = k.All()
	return have, len(have), err
}

// Find returns the kernel's objects with an object's key.
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

// Observed is a kind whose objects in the kernel are shown in another form than the one in which
// users create them.
type Observed[T, S any] interface {
	Kernel[T]
	Observed() ([]S, error)
}

// Routes are the routes of the main table. EachObserved does not hold them in memory, since there
// may be a million.
type Routes interface {
	Kernel[Route]
	EachObserved(yield func(*ObservedRoute) bool) error
}

// Neighbors are the hosts with known MAC addresses.
type Neighbors interface {
	Observed[Neighbor, Neighbor]
	Confirmed() ([]Neighbor, error) // neighbors that the kernel has confirmed as reachable
}

// Network is the kernel's network: the objects of each kind.
type Network struct {
	Devices interface {
		HasDevice(name string) (bool, error)
		Ports() ([]Port, error)
	}
	Addresses Observed[Address, DeviceAddresses]
	Routes    Routes
	Neighbors Neighbors
	FDBs      Observed[FDB, FDB]
	VLANs     Observed[VLAN, ObservedVLAN]
	Members   Kernel[VLANMember]
	VXLANs    Observed[VXLAN, ObservedVXLAN]
	Peers     Kernel[VXLANPeer]
	Created   func(kind, key string) bool // reports whether loxilb has created the object
}

// Kinds returns the names of all kinds.
func Kinds() []string {
	return []string{AddressKind, RouteKind, NeighborKind, FDBKind, VLANKind, VLANMemberKind, VXLANKind, VXLANPeerKind}
}

// NoDeviceError reports that no interface has this name.
type NoDeviceError struct{ Name string }

func (e *NoDeviceError) Error() string { return fmt.Sprintf("there is no interface %s", e.Name) }

// ForeignError reports that another program's object has the same key.
type ForeignError struct{ Kind, Has string }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("the kernel has %s %s in its place, which loxilb has not made: delete that object first", e.Kind, e.Has)
}
