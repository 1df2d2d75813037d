package objects

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// An Edit changes objects in a transaction, and may add warnings.
type Edit func(*store.Tx, *rest.Warnings) error

// Commit makes a change of one object, or of several of any kind, waits until packets see it, and
// replies.
func (a *API) Commit(w http.ResponseWriter, r *http.Request, one bool, edit func(*store.Tx, *Precondition) error) {
	if p := a.Change(w, r, one, edit); p != nil {
		p.Write(w)
		return
	}
	rest.Success(w)
}

// Change commits like Commit, and sets headers of the reply without sending it.
func (a *API) Change(w http.ResponseWriter, r *http.Request, one bool, edit func(*store.Tx, *Precondition) error) *rest.Problem {
	pre, p := preconditionOf(r)
	if p == nil {
		p = pre.forOne(one)
	}
	if p != nil {
		return p
	}
	by := store.CommitOptions{Owner: Owner, Author: author(r, "")}
	revision, changed, err := a.committer(Forced(r))(by, func(tx *store.Tx) error { return edit(tx, &pre) })
	if err != nil {
		return a.CommitProblem(err)
	}
	recordChange(r, revision, changed)
	ctx, cancel := context.WithTimeout(r.Context(), a.ApplyWait)
	defer cancel()
	if err := a.Statuses.Wait(ctx, revision, statusIDs(changed)); err != nil {
		return notApplied(revision, err)
	}
	if one && len(changed) == 1 {
		w.Header().Set("ETag", strconv.Quote(a.tagOf(changed[0], revision)))
	}
	return nil
}

// tagOf names the version that a change has given an object.
func (a *API) tagOf(id store.ID, revision uint64) string {
	if meta, ok := a.Store.Snapshot().Meta(id); ok && meta.Version == revision {
		return meta.Tag()
	}
	return strconv.FormatUint(revision, 10) // it is deleted, or has changed again
}

// Forced reports whether a change is made even if it ends accepted connections.
func Forced(r *http.Request) bool { return r.URL.Query().Get("force") == "true" }

// Exists refuses an object that already exists with the same content. The existing loxilb's clients
// treat that as success.
func (a *API) Exists(what string, id store.ID) *rest.Problem {
	sentence := fmt.Sprintf("%s %s exists already with the same content", what, id.Key)
	if s, ok := a.Statuses.Get(status.ID(id)); ok && s.Err != nil {
		sentence += fmt.Sprintf(", and is not applied yet: %v", s.Err)
	} else if ok && s.State() != status.Applied {
		sentence += ", and is not applied yet: the data path is still processing it"
	}
	return rest.Refuse(http.StatusConflict, "%s", sentence)
}

// DeleteObject deletes an object. Deleting a missing object succeeds: the existing loxilb's clients
// would otherwise retry forever.
func DeleteObject(tx *store.Tx, id store.ID, notes *rest.Warnings) error {
	err := tx.Delete(id)
	if errors.Is(err, store.ErrNotFound) {
		notes.Add("%v", err)
		return nil
	}
	return err
}

// CommitProblem maps the refusals of the store to codes.
func (a *API) CommitProblem(err error) *rest.Problem {
	var own *rest.Problem
	var fe *lb.FieldError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &fe):
		return rest.RefuseError(http.StatusBadRequest, rest.Renamed(a.Property(fe.Field), fe))
	case errors.Is(err, store.ErrNotFound):
		return rest.Refuse(http.StatusNotFound, "%v", err)
	case errors.Is(err, store.ErrVersion):
		return rest.Refuse(http.StatusPreconditionFailed, "%v", err)
	case errors.Is(err, store.ErrUnavailable):
		return rest.Refuse(http.StatusServiceUnavailable, "%v", err)
	case errors.Is(err, store.ErrOwner), errors.Is(err, store.ErrPending), errors.Is(err, store.ErrNewer), errors.As(err, new(*desired.InUseError)):
		return rest.Refuse(http.StatusConflict, "%v", err)
	case errors.Is(err, store.ErrLimit):
		return rest.Refuse(http.StatusBadRequest, "%v", err)
	}
	a.Log.Error("commit failed", "error", err)
	return rest.Refuse(http.StatusServiceUnavailable, "the change could not be stored: %v", err)
}

// author returns the caller's name. Without one, a change is named by its objects.
func author(r *http.Request, doing string) store.Author {
	who := rest.PrincipalOf(r)
	by := store.Author{Who: who.Name, From: r.RemoteAddr, Doing: doing}
	if who.By == transport.BySocket {
		by.From = "socket"
	} else if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		by.From = host
	}
	return by
}

// maxObjectsNamed is how many objects an entry of the audit log names.
const maxObjectsNamed = 8

// recordChange adds the request's changes to the audit log.
func recordChange(r *http.Request, revision uint64, ids []store.ID) {
	who := rest.PrincipalOf(r)
	who.Revision = revision
	for _, id := range ids[:min(len(ids), maxObjectsNamed)] {
		who.Objects = append(who.Objects, id.Kind+" "+id.Key)
	}
}
