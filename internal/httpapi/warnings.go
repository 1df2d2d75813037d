package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
)

// maxWarnings is how many warnings an answer names: headers have little room.
const maxWarnings = 8

// warnings are what a client should know of a request that is answered with success: in a header Warning each, as Kubernetes
// has them, since the body is the contract's.
type warnings []string

// add notes a warning once: an edit runs again when its transaction does.
func (w *warnings) add(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(*w, text) {
		*w = append(*w, text)
	}
}

// write puts them into the header of the answer, which has each of them once.
func (w *warnings) write(to http.ResponseWriter) {
	list := *w
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
