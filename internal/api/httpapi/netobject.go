package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"syscall"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/lb/netobj"
)

// netKind is a kind of objects of the kernel's network: those that users want, and those that the
// kernel has.
type netKind[T netobj.Object[T]] struct {
	table  *store.Table[T]
	kernel netobj.Kernel[T]
	found  func() ([]T, error) // what can be deleted besides All, because the kernel found it out by itself; nil: nothing
	of     func(key string) T  // an object with the key, where the kernel may have too many to read all; nil: all are read
	inUse  func(T) bool        // the kernel has it for something else of ours, which may end before; nil: never
}

// named is what the kernel has by a key.
func (k netKind[T]) named(key string) ([]T, error) {
	have, err := k.haveOf(key)
	if err != nil || len(have[key]) > 0 || k.found == nil {
		return have[key], err
	}
	found, err := k.found()
	return slices.DeleteFunc(found, func(o T) bool { return o.Key() != key }), err
}

// haveOf is what the kernel has by the key, among others.
func (k netKind[T]) haveOf(key string) (map[string][]T, error) {
	if k.of == nil {
		return k.kernel.All()
	}
	list, err := netobj.Find(k.kernel, k.of(key))
	return map[string][]T{key: list}, err
}

// createNet has the kernel have the object that parse makes of a body. What it has already, by
// somebody else, is left to that, and not remembered. What the kernel refuses is forgotten again: a
// request that is refused has changed nothing.
func createNet[T netobj.Object[T], Body any](a *API, w http.ResponseWriter, r *http.Request, k netKind[T], parse func(*Body) (T, error)) {
	o, p := rest.DecodeLenient(a.reader, w, r, func(data []byte) (o T, p *rest.Problem) {
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
	created := false
	p = a.change(w, r, true, func(tx *store.Tx, pre *precondition) error {
		if err := pre.check(tx, k.table, o.Key()); err != nil {
			return err
		}
		_, had := k.table.Meta(tx, o.Key())
		created = !had
		if err := k.table.Put(tx, o); err != nil {
			return err
		}
		if !tx.Changed() {
			return a.exists(id.Kind, id)
		}
		return nil
	})
	var refused *unapplied
	if p != nil && created && errors.As(p, &refused) {
		p = a.undo(r.Context(), id, refused, p)
	}
	if p != nil {
		p.Write(w)
		return
	}
	rest.Success(w)
}

// putProblem refuses what the kernel has already, and what needs an interface that is not there.
func (k netKind[T]) putProblem(a *API, o T) *rest.Problem {
	if _, wanted := k.table.Get(a.Store.Snapshot(), o.Key()); wanted {
		return nil
	}
	if p := a.needsDevices(o.Needs()); p != nil {
		return p
	}
	there, err := netobj.Find(k.kernel, o)
	if err != nil {
		return kernelProblem(err)
	}
	met, p := k.metBy(o, there)
	if met {
		id := k.table.ID(o.Key())
		return a.exists(id.Kind, id)
	}
	return p
}

// metBy tells whether what the kernel has by an object's key is that object, and refuses what is in
// its way.
func (k netKind[T]) metBy(o T, there []T) (bool, *rest.Problem) {
	switch {
	case k.inUse != nil && k.inUse(o):
		return false, nil
	case slices.ContainsFunc(there, o.MetBy):
		return true, nil
	case len(there) > 0:
		return false, kernelProblem(&netobj.ForeignError{Kind: k.table.ID("").Kind, Has: there[0].String()})
	}
	return false, nil
}

// needsDevices refuses what needs interfaces of which one is not there.
func (a *API) needsDevices(names []string) *rest.Problem {
	for _, dev := range names {
		switch there, err := a.Network.Devices.HasDevice(dev); {
		case err != nil:
			return kernelProblem(err)
		case !there:
			return kernelProblem(&netobj.NoDeviceError{Name: dev})
		}
	}
	return nil
}

// undo takes back an object that the kernel did not take, and answers why.
func (a *API) undo(ctx context.Context, id store.ID, refused *unapplied, p *rest.Problem) *rest.Problem {
	why := refused.failed.Failures[0].Err
	revision, _, err := a.Store.Commit(owner, func(tx *store.Tx) error {
		if err := tx.Expect(id, refused.revision); err != nil {
			return err
		}
		return tx.Delete(id)
	})
	if err != nil {
		return p // somebody else has changed it meanwhile
	}
	ctx, cancel := context.WithTimeout(ctx, a.ApplyWait)
	defer cancel()
	_ = a.Statuses.Wait(ctx, revision, []status.ID{status.ID(id)}) // there was nothing to be taken back
	return kernelProblem(why)
}

// deleteNet takes an object back, or, if nobody wants it from us, deletes what the kernel has by
// the key.
func deleteNet[T netobj.Object[T]](a *API, w http.ResponseWriter, r *http.Request, k netKind[T], key string, also ...func(*store.Tx) error) {
	id := k.table.ID(key)
	_, wanted := k.table.Meta(a.Store.Snapshot(), key)
	ours := wanted && a.Network.Made(id.Kind, key) // and so nothing of others is there
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
	p := a.change(w, r, len(also) == 0, func(tx *store.Tx, pre *precondition) error {
		if err := pre.check(tx, k.table, key); err != nil {
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
// reports whether the kernel has nothing by the key.
func (k netKind[T]) foreignProblem(a *API, r *http.Request, key string) (p *rest.Problem, gone bool) {
	there, err := k.named(key)
	if err != nil {
		return kernelProblem(err), false
	}
	c := &lockout{}
	for _, o := range there {
		c.paths = append(c.paths, k.accessPaths("deleting ", o)...)
	}
	if forced(r) || len(c.paths) == 0 {
		return nil, len(there) == 0
	}
	return a.lockoutProblem(c), false
}

// removeForeign removes what is left in the kernel by a key: others have made it.
func (k netKind[T]) removeForeign(key string) *rest.Problem {
	left, err := k.named(key)
	for _, o := range left {
		if k.inUse != nil && k.inUse(o) {
			continue
		}
		err = errors.Join(err, k.kernel.Remove(o))
	}
	if err != nil {
		return kernelProblem(err)
	}
	return nil
}

// kernelProblem answers what the kernel says.
func kernelProblem(err error) *rest.Problem {
	code := http.StatusBadRequest
	var errno syscall.Errno
	switch {
	case errors.As(err, new(*netobj.NoDeviceError)):
		code = http.StatusNotFound
	case errors.As(err, new(*netobj.ForeignError)):
		code = http.StatusConflict
	case !errors.As(err, &errno), errno == syscall.EPERM, errno == syscall.ENOMEM, errno == syscall.ENOBUFS:
		code = http.StatusServiceUnavailable
	case errno == syscall.EEXIST:
		code = http.StatusConflict
	}
	return rest.Refuse(code, "%v", err)
}
