package httpapi

import (
	"fmt"
	"net/http"
	"strconv"
)

// maxWarnings is how many warnings an answer names: headers have little room.
const maxWarnings = 8

// warnings are what a client should know of a request that is answered with success: in a header Warning each, as Kubernetes
// has them, since the body is the contract's.
type warnings []string

func (w *warnings) add(format string, args ...any) { *w = append(*w, fmt.Sprintf(format, args...)) }

// write puts them into the header of the answer.
func (w *warnings) write(to http.ResponseWriter) {
	list := *w
	if len(list) > maxWarnings {
		list = append(list[:maxWarnings-1:maxWarnings-1], fmt.Sprintf("and %d more of the kind", len(list)-maxWarnings+1))
	}
	for _, text := range list {
		to.Header().Add("Warning", "299 loxilb "+strconv.QuoteToASCII(text))
	}
}
