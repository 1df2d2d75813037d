package objects

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"loxilb/internal/control/store"
)

// SetAge adds the age of shared objects to an answer while the shared store is unavailable. The age
// is unknown if the daemon has started since.
func SetAge(h http.Header, remote *store.RemoteStatus) {
	if remote.Err == nil {
		return
	}
	age := "from before " + remote.Since.UTC().Format(time.RFC3339)
	if !remote.Contact.IsZero() {
		h.Set("Age", strconv.Itoa(int(time.Since(remote.Contact).Seconds())))
		age = "as of " + remote.Contact.UTC().Format(time.RFC3339)
	}
	h.Set("Warning", fmt.Sprintf(`110 loxilb %q`, "shared objects are "+age+": "+remote.Servers+" cannot be used"))
}
