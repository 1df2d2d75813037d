package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
)

// maxWarnings is how many warnings an answer names: headers have little room.
const maxWarnings = 8

// warnings are what a client should know of a request that is answered with success: in a header
// Warning each, as Kubernetes has them, since the body is the contract's. Each is there once: an
// edit runs again when its transaction does.
type warnings struct {
	list []string
	seen map[string]struct{} // a request of thousands of objects may warn of each
}

// add notes a warning.
func (w *warnings) add(format string, args ...any) { w.note(fmt.Sprintf(format, args...)) }

func (w *warnings) note(text string) {
	if _, there := w.seen[text]; there {
		return
	}
	if w.seen == nil {
		w.seen = map[string]struct{}{}
	}
	w.seen[text] = struct{}{}
	w.list = append(w.list, text)
}

// join notes those of another request.
func (w *warnings) join(other *warnings) {
	for _, text := range other.list {
		w.note(text)
	}
}

// write puts them into the header of the answer, which has each of them once.
func (w *warnings) write(to http.ResponseWriter) {
	list := w.list
	if len(list) > maxWarnings {
		list = append(list[:maxWarnings-1:maxWarnings-1], fmt.Sprintf("and %d more of the kind", len(list)-maxWarnings+1))
	}
	for _, text := range list {
		line := "299 loxilb " + strconv.QuoteToASCII(text)
		if !slices.Contains(to.Header().Values("Warning"), line) {
			to.Header().Add("Warning", line)
		}
	}
}
