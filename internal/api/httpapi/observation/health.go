package observation

import (
	"io"
	"net/http"
)

// Paths of health checks for monitoring. They are outside of the existing loxilb's API and need no
// token.
const (
	HealthPath = "/healthz"
	ReadyPath  = "/readyz"
)

// GetHealth replies 200 while the daemon answers at all.
func (a *API) GetHealth(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, "ok")
}

// GetReady replies 503 until each service was applied, or failed, once since the start of the
// daemon. Meanwhile, packets of services that the data path kept from the previous daemon are
// balanced. It also replies 503 while the node drains or is drained, so keepalived and Kubernetes
// prefer other nodes.
func (a *API) GetReady(w http.ResponseWriter, _ *http.Request) {
	if a.Ready != nil {
		if ready, text := a.Ready(); !ready {
			writeText(w, http.StatusServiceUnavailable, text)
			return
		}
	}
	if m := a.Store.Maintenance.OfThisNode(a.Store.Snapshot()); m != nil {
		writeText(w, http.StatusServiceUnavailable, "the node is "+string(m.Stage())+" until: loxicmd node resume")
		return
	}
	writeText(w, http.StatusOK, "ready")
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n") // fails only if the client has disconnected
}
