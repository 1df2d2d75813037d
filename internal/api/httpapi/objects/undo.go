package objects

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"time"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/host/monotime"
	"loxilb/internal/lb/netobj"
)

// lookForDevice is the interval of checks whether an interface has appeared.
const lookForDevice = 50 * time.Millisecond

// undoApply rolls back a whole change if the kernel refuses one of its network objects, and replies
// with the reason: a refused file changes nothing. It returns nil for other failures, which are
// retried.
func (a *API) undoApply(r *http.Request, t *transaction, revision uint64, p *rest.Problem) *rest.Problem {
	var all objectErrors
	var refused *Unapplied
	if !errors.As(p, &refused) || revision == 0 {
		return nil
	}
	for _, f := range refused.Failed.Failures {
		if k := a.kindOfID(store.ID(f.ID)); k != nil && k.Kernel {
			index, named := t.named[store.ID(f.ID)]
			if !named {
				index = -1
			}
			all.add(index, KernelProblem(f.Err))
		}
	}
	if len(all.list) == 0 {
		return nil
	}
	by := store.CommitOptions{Owner: Owner, Author: author(r, fmt.Sprintf("undo of revision %d, which the kernel refused", revision))}
	var left []store.ID
	undone, changed, err := a.Store.CommitBy(by, func(tx *store.Tx) (err error) {
		left, err = tx.Undo(revision)
		return err
	})
	if err != nil {
		a.Log.Error("a change that the kernel refused could not be undone", "revision", revision, "error", err)
		return nil
	}
	recordChange(r, undone, changed)
	out := all.problem(len(t.named))
	if len(left) > 0 {
		out.SetMessage(undoneButFor(left) + ": " + all.first())
	}
	return out
}

// undoneButFor returns the parts of a rolled back change that remain.
func undoneButFor(left []store.ID) string {
	names := make([]string, 0, maxObjectsNamed)
	for _, id := range left[:min(len(left), maxObjectsNamed)] {
		names = append(names, id.String())
	}
	text := strings.Join(names, ", ")
	if more := len(left) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "the change was undone, except for objects that others have changed since (" + text + ")"
}

// waitForAll waits until the change is applied everywhere. Objects on an interface of the same
// change fail until it exists.
func (a *API) waitForAll(ctx context.Context, revision uint64, changed []store.ID) error {
	made := a.devicesOf(nil)
	for {
		err := a.Statuses.Wait(ctx, revision, statusIDs(changed))
		var failed *status.Error
		if !errors.As(err, &failed) || ctx.Err() != nil {
			return err
		}
		for _, f := range failed.Failures {
			var missing *netobj.NoDeviceError
			if !errors.As(f.Err, &missing) || !made[missing.Name] {
				return err
			}
		}
		if !monotime.Sleep(ctx, lookForDevice) {
			return err
		}
	}
}

// devicesOf returns the interfaces made by objects of a list, or by stored ones.
func (a *API) devicesOf(list []listed) map[string]bool {
	made := map[string]bool{}
	now := a.Store.Snapshot()
	for o := range a.Store.VLANs.All(now) {
		made[o.Device()] = true
	}
	for o := range a.Store.VXLANs.All(now) {
		made[o.Device()] = true
	}
	for i := range list {
		switch o := list[i].Value.(type) {
		case netobj.VLAN:
			made[o.Device()] = true
		case netobj.VXLAN:
			made[o.Device()] = true
		}
	}
	return made
}

// KernelProblem replies with an error of the kernel.
func KernelProblem(err error) *rest.Problem {
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
