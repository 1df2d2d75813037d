package objects

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// GetRevisions replies with the available revisions, the newest first.
func (a *API) GetRevisions(w http.ResponseWriter, r *http.Request) {
	if p := rest.RefuseUnknownParameters(r, nil); p != nil {
		p.Write(w)
		return
	}
	out := rest.NewList(w, "revisionAttr")
	for _, r := range a.Store.Revisions() {
		one := v1.Revision{
			Revision: r.Number, Time: r.Time, Who: r.Who, From: r.From, Doing: r.Doing,
			Created: r.Created, Changed: r.Changed, Deleted: r.Deleted,
		}
		if !r.Confirm.IsZero() {
			one.Confirm = &r.Confirm
		}
		if !out.Item(one) {
			return
		}
	}
	out.End()
}

// ConfirmApply confirms a revision.
func (a *API) ConfirmApply(w http.ResponseWriter, r *http.Request) {
	body, p := rest.Decode(a.Reader, w, r, rest.Unmarshal[v1.ConfirmRequest])
	if p != nil {
		p.Write(w)
		return
	}
	number, err := a.Store.Confirm(body.Revision)
	if err != nil {
		code := http.StatusServiceUnavailable
		if errors.Is(err, store.ErrPending) || errors.Is(err, store.ErrConfirmed) {
			code = http.StatusNotFound
		}
		text := err.Error()
		if undone, ok := a.Store.LastRollback(); ok && errors.Is(err, store.ErrPending) {
			text += fmt.Sprintf(": the last one that did was rolled back at %s, by revision %d", undone.Time.Format(time.RFC3339), undone.Number)
		}
		rest.Refuse(code, "%s", text).Write(w)
		return
	}
	text := fmt.Sprintf("revision %d confirmed", number)
	if who := author(r, "").Who; who != "" {
		text += " by " + who
	}
	rest.JSON(w, v1.Result{Result: "Success", Message: text})
}

// RollBack restores all objects to a revision.
func (a *API) RollBack(w http.ResponseWriter, r *http.Request) {
	body, p := rest.Decode(a.Reader, w, r, rest.Unmarshal[v1.RollbackRequest])
	if p == nil && body.Revision == nil {
		p = rest.RefuseField(http.StatusBadRequest, "revision", "", "is missing", "one of GET config/revisions")
	}
	if p != nil {
		p.Write(w)
		return
	}
	var kept []string
	a.transact(w, r, transaction{
		dryRun: body.DryRun, force: body.Force, doing: fmt.Sprintf("rollback to revision %d", *body.Revision), kept: &kept,
		edit: func(tx *store.Tx) error {
			left, err := tx.RollBackTo(*body.Revision, func(now, then any) bool {
				return isRole(now) || isRole(then) || !body.Managed && (managed(now) || managed(then))
			})
			if errors.Is(err, store.ErrForgotten) {
				return rest.Refuse(http.StatusNotFound, "%v", err)
			}
			kept = nil
			for _, id := range left {
				kept = append(kept, id.String())
			}
			return err
		},
	})
}

// isRole reports whether an object is a role of this node. A rollback keeps roles, since peers have
// been notified of them.
func isRole(object any) bool {
	_, ok := object.(lb.Instance)
	return ok
}

func managed(object any) bool {
	s, ok := object.(lb.Service)
	return ok && s.Managed
}
