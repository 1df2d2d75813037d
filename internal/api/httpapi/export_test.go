package httpapi

import (
	"net/http"

	"loxilb/internal/api/httpapi/rest"
)

// Mux is the router, for tests.
func (a *API) Mux() *http.ServeMux { return a.mux }

// Unread are the places for large answers, for tests.
func (a *API) Unread() rest.UnreadAnswers { return a.unread }
