package httpapi

import (
	"net"
	"net/http"

	"loxilb/internal/api/httpapi/transport"
	"loxilb/internal/control/store"
)

// author says who asks for a change. Without a name of its own the change is named by its objects.
func author(r *http.Request, doing string) store.Author {
	who := principalOf(r)
	by := store.Author{Who: who.name, From: r.RemoteAddr, Doing: doing}
	if who.by == transport.BySocket {
		by.From = "socket"
	} else if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		by.From = host
	}
	return by
}
