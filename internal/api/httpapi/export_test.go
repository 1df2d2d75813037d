package httpapi

import (
	"net/http"

	"loxilb/internal/api/httpapi/rest"
)

// Mux returns the router, for tests.
func (a *API) Mux() *http.ServeMux { return a.mux }

// Unread returns the limit on large responses, for tests.
func (a *API) Unread() rest.UnreadAnswers { return a.unread }
