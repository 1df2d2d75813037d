package observation

import (
	"io"
	"net/http"
)

// Where whoever watches over the daemon asks how it is, outside of the contract and without being
// asked who they are.
const (
	HealthPath = "/healthz"
	ReadyPath  = "/readyz"
)

// GetHealth answers 200 while the daemon answers at all.
func (a *API) GetHealth(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, "ok")
}

// GetReady answers 503 until every service was tried once since the daemon started. Packets of
// services that the data path kept from an earlier life are balanced all the while.
func (a *API) GetReady(w http.ResponseWriter, _ *http.Request) {
	if a.Ready != nil {
		if ready, text := a.Ready(); !ready {
			writeText(w, http.StatusServiceUnavailable, text)
			return
		}
	}
	writeText(w, http.StatusOK, "ready")
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n") // the client is gone if this fails
}
