package objects

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/manifest"
	"loxilb/internal/control/store"
)

const (
	maxMetadata   = 64 << 10
	maxConfirm    = 86400 // seconds
	maxDoing      = 200   // characters of a revision's name
	allKinds      = "all" // in ApplyRequest.Prune
	defaultAction = "apply"
)

// application is a request to apply, read and checked without a look at the store.
type application struct {
	objects []listed
	named   map[store.ID]int // positions of objects in the list
	remove  bool
	prune   []*Kind
	dryRun  bool
	force   bool
	confirm time.Duration
	doing   string
}

// listed is an object of a list.
type listed struct {
	Wanted
	kind  *Kind
	there bool // besides the store: nothing is to be done
}

func (o *listed) id() store.ID { return store.ID{Kind: o.kind.Name, Key: o.Key} }

// ApplyObjects applies a list of objects of any kinds in one transaction.
func (a *API) ApplyObjects(w http.ResponseWriter, r *http.Request) {
	req, p := rest.Decode(a.Reader, w, r, a.decodeApply)
	if p != nil {
		p.Write(w)
		return
	}
	a.transact(w, r, transaction{
		edit: req.edit, dryRun: req.dryRun, force: req.force, confirm: req.confirm, doing: req.doing, named: req.named,
	})
}

// transaction is a change of objects of any kinds. Its answer lists the changes.
type transaction struct {
	edit    func(tx *store.Tx) error
	dryRun  bool
	force   bool          // even if it ends accepted connections
	confirm time.Duration // 0: no confirmation needed
	doing   string
	named   map[store.ID]int // positions of objects in the request
	kept    *[]string        // objects that edit left unchanged; nil: none
}

// transact makes a change, waits until the data path has it, and replies. A dry run only replies
// with the changes.
func (a *API) transact(w http.ResponseWriter, r *http.Request, t transaction) {
	if t.dryRun {
		var locked *lockout
		before, after, changed, err := a.Store.Preview(store.CommitOptions{Owner: Owner}, func(tx *store.Tx) error {
			err := t.edit(tx)
			locked = a.lockoutOf(tx)
			return err
		})
		if err != nil {
			a.CommitProblem(err).Write(w)
			return
		}
		out := a.result(&t, before, after, changed)
		for _, s := range a.disconnected(locked) {
			out.Cuts = append(out.Cuts, s.String())
		}
		a.countAffected(r.Context(), &out, before, after, locked)
		rest.JSON(w, out)
		return
	}
	by := store.CommitOptions{Owner: Owner, Author: author(r, t.doing)}
	if t.confirm > 0 {
		by.Confirm = time.Now().Add(t.confirm)
	}
	var before *store.Snapshot
	force := t.force || t.confirm > 0 // an unconfirmed change rolls back
	revision, changed, err := a.committer(force)(by, func(tx *store.Tx) error {
		before = tx.Before()
		return t.edit(tx)
	})
	if err != nil {
		a.CommitProblem(err).Write(w)
		return
	}
	recordChange(r, revision, changed)
	ctx, cancel := context.WithTimeout(r.Context(), a.ApplyWait)
	defer cancel()
	if err := a.waitForAll(ctx, revision, changed); err != nil {
		p := notApplied(revision, err)
		if undone := a.undoApply(r, &t, revision, p); undone != nil {
			p = undone
		}
		p.Write(w)
		return
	}
	out := a.result(&t, before, a.Store.Snapshot(), changed)
	if len(changed) > 0 {
		out.Revision = revision
		if t.confirm > 0 {
			out.Confirm = &by.Confirm
		}
	}
	rest.JSON(w, out)
}

// result returns the answer.
func (a *API) result(t *transaction, before, after *store.Snapshot, changed []store.ID) v1.ApplyResult {
	out := v1.ApplyResult{Result: "Success", Changes: a.changes(before, after, changed, t.dryRun), Unchanged: len(t.named)}
	for i := range out.Changes {
		c := &out.Changes[i]
		k := a.kindOf(c.Kind)
		if k == nil || len(t.named) == 0 {
			continue
		}
		if _, named := t.named[store.ID{Kind: k.Name, Key: c.Name}]; named {
			out.Unchanged--
		} else {
			c.Pruned = true
		}
	}
	if t.kept != nil {
		out.Kept = *t.kept
	}
	out.Notes = a.nodeNotes(changed)
	return out
}

// nodeNotes names the nodes that a change is for, and the nodes that get it later. Without a shared
// store it returns nothing.
func (a *API) nodeNotes(changed []store.ID) (notes []string) {
	remote, ok := a.Store.Remote()
	shared := 0
	for _, id := range changed {
		if a.Store.SharedKind(id.Kind) {
			shared++
		}
	}
	if !ok || shared == 0 {
		return nil
	}
	if shared == len(changed) {
		notes = append(notes, "all changes are for all nodes")
	} else {
		notes = append(notes, fmt.Sprintf("%d of %d changes are for all nodes, the others for this node only", shared, len(changed)))
	}
	if remote.Err != nil {
		notes = append(notes, fmt.Sprintf("the changes for all nodes are refused for now: %s: %v", remote.Servers, remote.Err))
	}
	for _, n := range remote.Nodes {
		switch {
		case n.Name == remote.Node:
		case !n.Gone.IsZero():
			notes = append(notes, fmt.Sprintf("node %s has been away since %s, and gets them when it is back", n.Name, n.Gone.Format(time.TimeOnly)))
		case n.Behind:
			notes = append(notes, fmt.Sprintf("node %s is behind: it has not applied earlier changes yet", n.Name))
		}
	}
	return notes
}

func (a *API) decodeApply(data []byte) (req *application, p *rest.Problem) {
	body, p := rest.Unmarshal[v1.ApplyRequest](data)
	if p != nil {
		return nil, p
	}
	return a.application(body)
}

// application checks a request.
func (a *API) application(body *v1.ApplyRequest) (req *application, p *rest.Problem) {
	req = &application{remove: body.Remove, dryRun: body.DryRun, force: body.Force, doing: body.Doing}
	switch {
	case len(body.Objects) == 0 && len(body.Prune) == 0:
		return nil, rest.RefuseField(http.StatusBadRequest, "objects", "", "is missing or empty", "a list of objects")
	case body.Confirm < 0 || body.Confirm > maxConfirm:
		return nil, rest.RefuseField(http.StatusBadRequest, "confirm", body.Confirm.String(), "is out of range", "1 to "+strconv.Itoa(maxConfirm)+" seconds, 0 for none")
	case body.Remove && len(body.Prune) > 0:
		return nil, rest.Refuse(http.StatusBadRequest, "prune and remove exclude each other: delete the objects that are not in the list, or those that are")
	case utf8.RuneCountInString(body.Doing) > maxDoing:
		return nil, rest.RefuseField(http.StatusBadRequest, "doing", "", "is too long", strconv.Itoa(maxDoing)+" characters")
	}
	req.confirm = time.Duration(body.Confirm) * time.Second
	if req.doing == "" {
		req.doing = defaultAction
	}
	for _, word := range body.Prune {
		if word == allKinds {
			for i := range a.kinds {
				req.prune = append(req.prune, &a.kinds[i])
			}
			continue
		}
		k := a.kindOf(word)
		if k == nil {
			return nil, rest.RefuseField(http.StatusBadRequest, "prune", word, "is not a kind that this loxilb serves", allKinds+", "+a.kindNames())
		}
		req.prune = append(req.prune, k)
	}
	req.objects, p = a.readObjects(body.Objects, body.Remove)
	req.named = make(map[store.ID]int, len(req.objects))
	for i := range req.objects {
		req.named[req.objects[i].id()] = i
	}
	return req, p
}

// readObjects reads a list on all processors.
func (a *API) readObjects(list []v1.Object, keyOnly bool) ([]listed, *rest.Problem) {
	out := make([]listed, len(list))
	problems := make([]*rest.Problem, len(list))
	var next, wrong atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(list)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(list) && wrong.Load() < maxErrors; i = int(next.Add(1)) - 1 {
				if out[i], problems[i] = a.readObject(&list[i], keyOnly); problems[i] != nil {
					wrong.Add(int64(max(1, len(problems[i].Body.Errors))))
				}
			}
		})
	}
	workers.Wait()
	var all objectErrors
	first := make(map[store.ID]int, len(out))
	for i, p := range problems {
		if all.full() {
			break
		}
		if p != nil {
			all.add(i, p)
			continue
		}
		if out[i].kind == nil {
			continue // it was not read, after too many errors
		}
		id := out[i].id()
		if other, twice := first[id]; twice {
			all.list = append(all.list, v1.ObjectError{Index: i, Other: &other, Message: fmt.Sprintf("%s %s is given twice", out[i].kind.Document, id.Key)})
			continue
		}
		first[id] = i
	}
	if !keyOnly && len(all.list) == 0 {
		a.lookOutside(out, &all)
	}
	if p := all.problem(len(list)); p != nil {
		return nil, p
	}
	return out, nil
}

// lookOutside asks each kind for objects that exist outside of the store.
func (a *API) lookOutside(list []listed, all *objectErrors) {
	made := a.devicesOf(list)
	asks := map[*Kind]func(*Wanted) (bool, *rest.Problem){}
	for i := range list {
		o := &list[i]
		if all.full() {
			return
		}
		if o.kind.Outside == nil {
			continue
		}
		if asks[o.kind] == nil {
			asks[o.kind] = o.kind.Outside(made, valuesOf(list, o.kind))
		}
		there, p := asks[o.kind](&o.Wanted)
		if p != nil {
			all.add(i, p)
		}
		o.there = there
	}
}

// valuesOf returns the objects of a kind.
func valuesOf(list []listed, kind *Kind) (values []any) {
	for i := range list {
		if list[i].kind == kind {
			values = append(values, list[i].Value)
		}
	}
	return values
}

func (a *API) readObject(o *v1.Object, keyOnly bool) (listed, *rest.Problem) {
	if o.ApiVersion != "" && o.ApiVersion != manifest.APIVersion {
		return listed{}, rest.RefuseField(http.StatusBadRequest, "apiVersion", o.ApiVersion, "is not known", manifest.APIVersion)
	}
	k := a.kindOf(o.Kind)
	if k == nil {
		kind := rest.Shorten(o.Kind)
		p := rest.Refuse(http.StatusBadRequest, "kind %q is not part of this build", kind)
		p.Body.Field, p.Body.Value = "kind", kind
		return listed{}, p
	}
	if len(o.Metadata) > maxMetadata {
		return listed{}, rest.RefuseField(http.StatusBadRequest, "metadata", "", "has "+strconv.Itoa(len(o.Metadata))+" bytes", "at most "+strconv.Itoa(maxMetadata))
	}
	one, p := k.Read(o, keyOnly)
	return listed{one, k, false}, p
}

// edit makes all possible changes, and returns the errors of the others.
func (req *application) edit(tx *store.Tx) error {
	var all objectErrors
	for i := range req.objects {
		if all.full() {
			break
		}
		o := &req.objects[i]
		var err error
		switch {
		case o.there:
		case req.remove:
			if err = tx.Delete(o.id()); errors.Is(err, store.ErrNotFound) {
				err = nil
			}
		default:
			err = o.Put(tx)
		}
		all.addError(i, err)
	}
	for _, k := range req.prune {
		if err := prune(tx, k, req.named); err != nil {
			return err
		}
	}
	for i := range req.objects {
		if o := &req.objects[i]; o.kind.Check != nil && !req.remove && !all.full() {
			all.addError(i, o.kind.Check(tx, &o.Wanted))
		}
	}
	if p := all.problem(len(req.objects)); p != nil {
		return p
	}
	return nil
}

// prune deletes objects that the list lacks, except those of controllers and other owners.
func prune(tx *store.Tx, k *Kind, named map[store.ID]int) error {
	for _, key := range slices.Collect(k.Keys(tx)) {
		id := store.ID{Kind: k.Name, Key: key}
		if _, there := named[id]; there || k.Managed != nil && k.Managed(tx, key) {
			continue
		}
		if err := tx.Delete(id); err != nil && !errors.Is(err, store.ErrOwner) {
			return err
		}
	}
	return nil
}
