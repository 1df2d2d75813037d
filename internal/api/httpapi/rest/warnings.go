package rest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
)

// MaxWarnings is how many warnings an answer names: headers have little room.
const MaxWarnings = 8

// Warnings are what a client should know of a request that is answered with success: in a header
// Warning each, as Kubernetes has them, since the body is the contract's. Each is there once: an
// edit runs again when its transaction does.
type Warnings struct {
	List []string
	seen map[string]struct{} // a request of thousands of objects may warn of each
}

// Add notes a warning.
func (w *Warnings) Add(format string, args ...any) { w.note(fmt.Sprintf(format, args...)) }

func (w *Warnings) note(text string) {
	if _, there := w.seen[text]; there {
		return
	}
	if w.seen == nil {
		w.seen = map[string]struct{}{}
	}
	w.seen[text] = struct{}{}
	w.List = append(w.List, text)
}

// Join notes those of another request.
func (w *Warnings) Join(other *Warnings) {
	for _, text := range other.List {
		w.note(text)
	}
}

// Write sets the warnings in the header of the response, each of them once.
func (w *Warnings) Write(to http.ResponseWriter) {
	list := w.List
	if len(list) > MaxWarnings {
		list = append(list[:MaxWarnings-1:MaxWarnings-1], fmt.Sprintf("and %d more of the kind", len(list)-MaxWarnings+1))
	}
	for _, text := range list {
		line := "299 loxilb " + strconv.QuoteToASCII(text)
		if !slices.Contains(to.Header().Values("Warning"), line) {
			to.Header().Add("Warning", line)
		}
	}
}
