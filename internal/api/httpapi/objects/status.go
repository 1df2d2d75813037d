package objects

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/listing"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// Statuses returns the status of each object in the data path.
type Statuses interface {
	Get(id status.ID) (status.Status, bool)
	List(kind string, failedOnly bool) []status.Status
	// Named returns the statuses of objects with one of these keys, or of "kind key".
	Named(names []string) []status.Status
	// Wait blocks until the objects are applied in this version or a later one, or removed if
	// they are deleted. *status.Error lists failed objects.
	Wait(ctx context.Context, version uint64, ids []status.ID) error
}

// GetStatuses replies with the statuses of all objects, or of the requested ones.
func (a *API) GetStatuses(w http.ResponseWriter, r *http.Request, params v1.GetStatusesParams) {
	p := rest.RefuseUnknownParameters(r, params)
	if p != nil {
		p.Write(w)
		return
	}
	q, p := rest.ParseQuery(statusFields(), params.Name, params.Selector, params.SortBy, params.Limit, params.Continue)
	if p != nil {
		p.Write(w)
		return
	}
	now := a.Store.Snapshot()
	list := listing.List[*status.Status]{
		Rows: func(yield func(*status.Status) bool) {
			for _, s := range a.statusesFor(now, q, &params) {
				if !yield(&s) {
					return
				}
			}
		},
		Key:        func(s *status.Status) string { return s.Kind + " " + s.Key },
		Order:      strings.Compare,
		OtherNames: func(s *status.Status) []string { return []string{s.Key, a.nameOf(now, s.ID)} },
		Values:     func(s *status.Status, path string) []string { return statusFields().Values(statusOf(s), path) },
	}
	rest.WritePage(w, r, "statusAttr", &list, q, func(s *status.Status) any { return a.statusIn(now, s) })
}

// statusesFor returns the statuses that may match a query.
func (a *API) statusesFor(now *store.Snapshot, q *listing.Query, params *v1.GetStatusesParams) []status.Status {
	if len(q.Names) == 0 {
		return a.Statuses.List(params.Kind, params.Failed)
	}
	names := slices.Clone(q.Names)
	for _, name := range q.Names {
		for _, s := range a.Store.Services.ByName(now, name) {
			names = append(names, s.Key.String())
		}
	}
	return slices.DeleteFunc(a.Statuses.Named(names), func(s status.Status) bool {
		return params.Kind != "" && s.Kind != params.Kind || params.Failed && s.Err == nil
	})
}

// statusFields are the fields to select and sort statuses by.
var statusFields = sync.OnceValue(func() *listing.Fields { return listing.FieldsOf[v1.Status](nil) })

// nameOf returns the name of a service; other objects have none.
func (a *API) nameOf(now *store.Snapshot, id status.ID) string {
	key, ok := desired.ServiceKey(store.ID(id))
	if !ok {
		return ""
	}
	s, _ := a.Store.Services.Get(now, key)
	return s.Name
}

// ServiceStatus returns the status of a service in a snapshot.
func (a *API) ServiceStatus(now *store.Snapshot, key lb.Key) *v1.Status {
	s := a.AppliedStatus(now, key)
	return a.statusIn(now, &s)
}

// AppliedStatus returns the status of a service in a snapshot. A service that the reconciler has
// not handled yet is pending.
func (a *API) AppliedStatus(now *store.Snapshot, key lb.Key) status.Status {
	id := desired.ServiceID(key)
	meta, _ := now.Meta(id)
	s, ok := a.Statuses.Get(status.ID(id))
	if !ok {
		s.ID = status.ID(id)
	}
	if !s.Removed {
		s.Desired = max(s.Desired, meta.Version)
	}
	return s
}

// statusIn returns a status with its object's properties from a snapshot.
func (a *API) statusIn(now *store.Snapshot, s *status.Status) *v1.Status {
	out := statusOf(s)
	if key, ok := desired.ServiceKey(store.ID(s.ID)); ok {
		if service, _ := a.Store.Services.Shared(now, key); service != nil {
			a.announcements(out, service)
			for _, c := range service.Conditions() {
				out.Conditions = append(out.Conditions, v1.Condition{Type: c.Type, Message: c.Message})
			}
		}
	}
	return out
}

// announcements adds whether the VIPs of a service are announced by BGP, if the service requests
// it.
func (a *API) announcements(out *v1.Status, service *lb.Service) {
	if !service.BGP {
		return
	}
	if a.Announcements == nil {
		out.Conditions = append(out.Conditions, v1.Condition{Type: "BGP", Message: "the VIPs are not announced: loxilb was started without --bgp"})
		return
	}
	for _, one := range a.Announcements(service) {
		out.Announcements = append(out.Announcements, v1.Announcement{
			Prefix: one.Prefix.String(), Announced: one.Announced, Reason: one.Why, Since: one.Since,
		})
		if !one.Announced {
			out.Conditions = append(out.Conditions, v1.Condition{Type: "BGP", Message: one.Prefix.String() + " is not announced: " + one.Why})
		}
	}
}

func statusIDs(ids []store.ID) []status.ID {
	out := make([]status.ID, len(ids))
	for i, id := range ids {
		out[i] = status.ID(id)
	}
	return out
}

func statusOf(s *status.Status) *v1.Status {
	out := &v1.Status{
		Kind: s.Kind, Key: s.Key, State: string(s.State()), Desired: s.Desired, Applied: s.Applied,
		Since: s.Since, NextTry: s.Next, Attempts: s.Attempts,
	}
	if s.Removed {
		out.Desired = 0
	}
	if s.Err != nil {
		out.Error = s.Err.Error()
	}
	return out
}

// Unapplied is a change that is stored, and that the data path or the kernel refused.
type Unapplied struct {
	Revision uint64
	Failed   *status.Error
}

func (u *Unapplied) Error() string { return u.Failed.Error() }

// notApplied answers a change that is stored but not applied.
func notApplied(version uint64, err error) *rest.Problem {
	var failed *status.Error
	var p *rest.Problem
	switch {
	case errors.As(err, &failed) && len(failed.Failures) > 0:
		text := fmt.Sprintf("stored as version %d, but the data path could not take it: %v", version, failed)
		if next := time.Until(failed.Failures[0].Next); next > 0 {
			text += fmt.Sprintf(": trying again in %s", max(next.Round(time.Second), time.Second))
		}
		p = rest.Refuse(http.StatusServiceUnavailable, "%s", text)
	case errors.Is(err, status.ErrWaiting), errors.Is(err, context.DeadlineExceeded):
		p = rest.Refuse(http.StatusServiceUnavailable, "stored as version %d, but not applied yet: the data path is still processing it", version)
	default:
		p = rest.Refuse(http.StatusServiceUnavailable, "stored as version %d, but not applied yet: %v", version, err)
	}
	if failed != nil {
		p.Cause = &Unapplied{version, failed}
	}
	return p
}
