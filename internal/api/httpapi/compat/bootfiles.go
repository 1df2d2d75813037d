package compat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/contract"
	"loxilb/internal/control/store"
)

// bootFile is a file that the existing loxilb's `loxicmd save` writes and its daemon reads at each
// start: an answer of GET.
type bootFile struct {
	Name   string // in the directory
	list   string // the property with the objects
	Create string // the path of the operation that creates an object
}

// BootFiles returns all, in the order in which they are read.
func BootFiles() []bootFile {
	return []bootFile{
		{"EPconfig.txt", "Attr", "/config/endpoint"},
		{"lbconfig.txt", "lbAttr", "/config/loadbalancer"},
		{"sessionconfig.txt", "sessionAttr", "/config/session"},
		{"sessionulclconfig.txt", "ulclAttr", "/config/sessionulcl"},
		{"FWconfig.txt", "fwAttr", "/config/firewall"},
		{"BFDconfig.txt", "Attr", "/config/bfd"},
	}
}

// bootObject is an object of a file, and its position.
type bootObject struct {
	file, at string
	put      objects.Edit
}

// LoadBootFiles stores the objects of a directory's files, before anything else runs. It reads a
// file that changed after the state was last stored or opened, or if nothing was ever stored:
// otherwise each start would undo later changes. It logs objects that it cannot store, and
// continues. Objects that failed for lack of space are read again at the next start.
func (a *API) LoadBootFiles(dir string, unread *store.Unread) {
	var err error
	if a.Store.Snapshot().Revision() == 0 {
		err = unread.IncludeAll()
	}
	var list []bootObject
	for _, f := range BootFiles() {
		path := filepath.Join(dir, f.Name)
		data, err := a.readBootFile(path, unread.Since)
		var found []bootObject
		if err == nil && data != nil {
			found, err = a.bootObjects(path, f, data)
		}
		if err != nil {
			a.Log.Error("boot file cannot be read", "file", path, "error", err)
		}
		list = append(list, found...)
	}
	by := store.CommitOptions{Owner: objects.Owner, Author: store.Author{Who: "loxilb", From: dir, Doing: "boot files"}}
	taken, stored := a.putBootObjects(by, list)
	if len(list) > 0 {
		a.Log.Info("boot files read", "dir", dir, "objects", taken)
	}
	if stored {
		err = errors.Join(err, unread.Done())
	}
	if err != nil {
		a.Log.Error("cannot record that the boot files were read: the next start may read them again, or skip them", "error", err)
	}
}

// readBootFile returns nil for a file that is missing or ignored.
func (a *API) readBootFile(path string, stored time.Time) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case info.Size() > rest.MaxBody:
		return nil, fmt.Errorf("it is larger than %d MiB", rest.MaxBody>>20)
	case !info.ModTime().After(stored):
		a.Log.Info("boot file is older than the stored objects, which take precedence", "file", path, "changed", info.ModTime(), "stored", stored)
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it is only read
	data, err := io.ReadAll(io.LimitReader(f, rest.MaxBody+1))
	if err == nil && len(data) > rest.MaxBody {
		err = fmt.Errorf("it is larger than %d MiB", rest.MaxBody>>20)
	}
	return data, err
}

// bootObjects returns the valid objects of a file, and logs the others.
func (a *API) bootObjects(path string, f bootFile, data []byte) (list []bootObject, err error) {
	entries, err := bootEntries(data, f.list)
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	read := a.Read[f.Create]
	if read == nil {
		return nil, errors.New(missingReason(f.Create))
	}
	for i, entry := range entries {
		at := fmt.Sprintf("%s[%d]", f.list, i)
		var notes rest.Warnings
		put, p := rest.Lenient(a.Reader, entry, &notes, read)
		if p != nil {
			a.Log.Error("boot file: an object is refused", "file", path, "at", at, "error", p)
			continue
		}
		for _, note := range notes.List {
			a.Log.Warn("boot file", "file", path, "at", at, "note", note)
		}
		list = append(list, bootObject{path, at, put})
	}
	return list, nil
}

// bootEntries returns the objects of a file whose only property is a list of them, or null.
func bootEntries(data []byte, name string) (entries []json.RawMessage, err error) {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, rest.DecodeProblem(data, err)
	}
	for member, value := range members {
		if strings.EqualFold(member, name) {
			return entries, json.Unmarshal(value, &entries)
		}
	}
	return nil, fmt.Errorf("property %q is missing", name)
}

// missingReason returns why an operation is missing.
func missingReason(path string) string {
	all := contract.AllOperations()
	return all[slices.IndexFunc(all, func(o contract.Operation) bool { return o.Path == path && o.Method == http.MethodPost })].Note
}

// putBootObjects stores objects, in one transaction if possible, and returns their number. It finds
// refused objects by bisection. stored is false if some could not be written to disk.
func (a *API) putBootObjects(by store.CommitOptions, list []bootObject) (taken int, stored bool) {
	if len(list) == 0 {
		return 0, true
	}
	var notes rest.Warnings
	_, _, err := a.Store.CommitBy(by, func(tx *store.Tx) error {
		notes = rest.Warnings{}
		for _, o := range list {
			if err := o.put(tx, &notes); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		for _, note := range notes.List {
			a.Log.Warn("boot file", "note", note)
		}
		return len(list), true
	}
	p := a.Objects.CommitProblem(err)
	switch {
	case p.Body.Code == http.StatusServiceUnavailable: // none can be stored
		a.Log.Error("boot file: its objects cannot be stored now; they are read again at the next start", "file", list[0].file, "at", list[0].at, "objects", len(list), "error", p)
		return 0, false
	case len(list) == 1:
		a.Log.Error("boot file: an object is refused", "file", list[0].file, "at", list[0].at, "error", p)
		return 0, true
	}
	half := len(list) / 2
	first, stored1 := a.putBootObjects(by, list[:half])
	second, stored2 := a.putBootObjects(by, list[half:])
	return first + second, stored1 && stored2
}
