package network

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/lb/netobj"
)

// netKind is a kind of network objects: the ones that loxilb created for users, and all of the
// kernel's. Functions return it, not methods of API: otherwise each package that uses API compiles
// the methods of netKind for each kind.
type netKind[T netobj.Object[T]] struct {
	table  store.Table[T]
	kernel netobj.Kernel[T]
	// found returns further objects that can be deleted, which the kernel has learned itself;
	// nil: there are none.
	found func() ([]T, error)
	// of returns an object with a key, to find the kernel's objects with that key without
	// reading all of them; nil: all are read.
	of    func(key string) T
	inUse func(T) bool // loxilb also uses the object for another purpose; nil: never
}

// named returns the kernel's objects with a key.
func (k netKind[T]) named(key string) ([]T, error) {
	byKey, err := k.kernelObjects(key)
	if err != nil || len(byKey[key]) > 0 || k.found == nil {
		return byKey[key], err
	}
	found, err := k.found()
	return slices.DeleteFunc(found, func(o T) bool { return o.Key() != key }), err
}

// kernelObjects returns the kernel's objects with a key, and perhaps others, by key.
func (k netKind[T]) kernelObjects(key string) (map[string][]T, error) {
	if k.of == nil {
		return k.kernel.All()
	}
	list, err := netobj.Find(k.kernel, k.of(key))
	return map[string][]T{key: list}, err
}

// createNet creates the object in a body, which parse parses. An object that exists in the kernel
// but was created by others is not stored. If the kernel refuses the object, the change of the
// store is undone.
func createNet[T netobj.Object[T], Body any](a *API, w http.ResponseWriter, r *http.Request, k netKind[T], parse func(*Body) (T, error)) {
	o, p := rest.DecodeLenient(a.Reader, w, r, func(data []byte) (o T, p *rest.Problem) {
		body, p := rest.Unmarshal[Body](data)
		if p != nil {
			return o, p
		}
		o, err := parse(body)
		if err != nil {
			return o, rest.BadRequest(err)
		}
		return o, nil
	})
	if p == nil {
		p = k.putProblem(a, o)
	}
	if p != nil {
		p.Write(w)
		return
	}
	id := k.table.ID(o.Key())
	var before T
	had := false
	p = a.Objects.Change(w, r, true, func(tx *store.Tx, pre *objects.Precondition) error {
		if err := pre.Check(tx, k.table, o.Key()); err != nil {
			return err
		}
		before, had = k.table.Get(tx, o.Key())
		if err := k.table.Put(tx, o); err != nil {
			return err
		}
		if !tx.Changed() {
			return a.Objects.Exists(id.Kind, id)
		}
		return nil
	})
	var refused *objects.Unapplied
	if p != nil && errors.As(p, &refused) {
		p = a.undo(r.Context(), id, refused, p, func(tx *store.Tx) error {
			if had {
				return k.table.Put(tx, before)
			}
			return tx.Delete(id)
		})
	}
	if p != nil {
		p.Write(w)
		return
	}
	rest.Success(w)
}

// putProblem refuses objects that the kernel already has, and objects on missing interfaces. The
// interfaces of a stored object may be missing for a while: it is created when they appear.
func (k netKind[T]) putProblem(a *API, o T) *rest.Problem {
	if stored, wanted := k.table.Get(a.Store.Snapshot(), o.Key()); wanted {
		has := stored.Needs()
		return a.needsDevices(slices.DeleteFunc(o.Needs(), func(dev string) bool { return slices.Contains(has, dev) }))
	}
	if p := a.needsDevices(o.Needs()); p != nil {
		return p
	}
	existing, err := netobj.Find(k.kernel, o)
	if err != nil {
		return objects.KernelProblem(err)
	}
	present, p := k.isPresent(o, existing)
	if present {
		id := k.table.ID(o.Key())
		return a.Objects.Exists(id.Kind, id)
	}
	return p
}

// isPresent reports whether one of the kernel's objects is the object already. It refuses an object
// that conflicts with them.
func (k netKind[T]) isPresent(o T, existing []T) (bool, *rest.Problem) {
	switch {
	case k.inUse != nil && k.inUse(o):
		return false, nil
	case slices.ContainsFunc(existing, o.SatisfiedBy):
		return true, nil
	case len(existing) > 0:
		return false, objects.KernelProblem(&netobj.ForeignError{Kind: k.table.Name(), Has: existing[0].String()})
	}
	return false, nil
}

// needsDevices refuses an object that needs a missing interface.
func (a *API) needsDevices(names []string) *rest.Problem {
	for _, dev := range names {
		switch there, err := a.Network.Devices.HasDevice(dev); {
		case err != nil:
			return objects.KernelProblem(err)
		case !there:
			return objects.KernelProblem(&netobj.NoDeviceError{Name: dev})
		}
	}
	return nil
}

// undo runs restore to undo the change of an object that the kernel refused, and returns the
// reason.
func (a *API) undo(ctx context.Context, id store.ID, refused *objects.Unapplied, p *rest.Problem, restore func(*store.Tx) error) *rest.Problem {
	why := refused.Failed.Failures[0].Err
	revision, _, err := a.Store.Commit(objects.Owner, func(tx *store.Tx) error {
		if err := tx.Expect(id, refused.Revision); err != nil {
			return err
		}
		return restore(tx)
	})
	if err != nil {
		return p // it was changed meanwhile
	}
	ctx, cancel := context.WithTimeout(ctx, a.Objects.ApplyWait)
	defer cancel()
	_ = a.Objects.Statuses.Wait(ctx, revision, []status.ID{status.ID(id)}) // why it was refused matters more
	return objects.KernelProblem(why)
}

// deleteNet deletes an object that was created here, or otherwise the kernel's object with the key.
func deleteNet[T netobj.Object[T]](a *API, w http.ResponseWriter, r *http.Request, k netKind[T], key string, also ...func(*store.Tx) error) {
	id := k.table.ID(key)
	_, wanted := k.table.Meta(a.Store.Snapshot(), key)
	ours := wanted && a.Network.Created(id.Kind, key) // then no other owner has one
	if !ours {
		p, gone := k.foreignProblem(a, r, key)
		if p != nil {
			p.Write(w)
			return
		}
		if gone && !wanted {
			var notes rest.Warnings
			notes.Add("%s does not exist", id)
			notes.Write(w)
		}
	}
	p := a.Objects.Change(w, r, len(also) == 0, func(tx *store.Tx, pre *objects.Precondition) error {
		if err := pre.Check(tx, k.table, key); err != nil {
			return err
		}
		for _, edit := range also {
			if err := edit(tx); err != nil {
				return err
			}
		}
		if _, wanted := k.table.Meta(tx, key); !wanted {
			return nil
		}
		return tx.Delete(id)
	})
	if p == nil && !ours {
		p = k.removeForeign(key)
	}
	if p != nil {
		p.Write(w)
		return
	}
	rest.Success(w)
}

// foreignProblem refuses to delete an object that others made and by which sessions arrive. gone
// reports whether the kernel has nothing with the key.
func (k netKind[T]) foreignProblem(a *API, r *http.Request, key string) (p *rest.Problem, gone bool) {
	there, err := k.named(key)
	if err != nil {
		return objects.KernelProblem(err), false
	}
	var paths []objects.AccessPath
	for _, o := range there {
		paths = append(paths, a.Objects.AccessPaths("deleting ", k.table.Name(), o)...)
	}
	if objects.Forced(r) || len(paths) == 0 {
		return nil, len(there) == 0
	}
	return a.Objects.RefuseDeletion(paths), false
}

// removeForeign removes the kernel's remaining objects with a key, which have other owners.
func (k netKind[T]) removeForeign(key string) *rest.Problem {
	left, err := k.named(key)
	for _, o := range left {
		if k.inUse != nil && k.inUse(o) {
			continue
		}
		err = errors.Join(err, k.kernel.Remove(o))
	}
	if err != nil {
		return objects.KernelProblem(err)
	}
	return nil
}
