package services

import (
	"net/http"
	"strconv"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

// DrainNode takes this node out of service. A request during a drain changes the deadline, and a
// drained node stays drained.
func (a *API) DrainNode(w http.ResponseWriter, r *http.Request) {
	wanted, p := rest.Decode(a.Reader, w, r, decodeNodeDrain)
	if p != nil {
		p.Write(w)
		return
	}
	var unchanged bool
	p = a.Objects.Change(w, r, true, func(tx *store.Tx, pre *objects.Precondition) error {
		if err := pre.Check(tx, a.Store.Maintenance, kinds.MaintenanceKey); err != nil {
			return err
		}
		one := wanted
		if before := a.Store.Maintenance.OfThisNode(tx); before != nil {
			one.Since, one.Drained = before.Since, before.Drained
		}
		if err := a.Store.Maintenance.Put(tx, one); err != nil {
			return err
		}
		unchanged = !tx.Changed()
		return nil
	})
	answerChange(w, p, unchanged)
}

func decodeNodeDrain(data []byte) (one lb.Maintenance, p *rest.Problem) {
	body, p := rest.Unmarshal[v1.NodeDrainRequest](data)
	if p != nil {
		return one, p
	}
	if body.Within < 0 || body.Within > maxWithin {
		return one, rest.RefuseField(http.StatusBadRequest, "within", body.Within.String(), "is out of range", "0 to "+strconv.Itoa(maxWithin)+" seconds")
	}
	now := time.Now()
	one.Since, one.Exit = now.Round(0), body.Exit
	if body.Within > 0 {
		one.Deadline = now.Add(time.Duration(body.Within) * time.Second) // now has a monotonic reading: the deadline is right even if the clock is set
	}
	return one, nil
}

// ResumeNode puts this node back into service. Resuming a node in service succeeds, so a script may
// run twice.
func (a *API) ResumeNode(w http.ResponseWriter, r *http.Request) {
	var unchanged bool
	p := a.Objects.Change(w, r, true, func(tx *store.Tx, pre *objects.Precondition) error {
		if err := pre.Check(tx, a.Store.Maintenance, kinds.MaintenanceKey); err != nil {
			return err
		}
		if unchanged = a.Store.Maintenance.OfThisNode(tx) == nil; unchanged {
			return nil
		}
		return tx.Delete(a.Store.Maintenance.ID(kinds.MaintenanceKey))
	})
	answerChange(w, p, unchanged)
}
