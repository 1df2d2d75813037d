package httpapi

import (
	"net"
	"net/http"
	"unicode/utf8"

	"loxilb/internal/httpapi/transport"
	"loxilb/internal/store"
)

// author says who asks for a change.
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

// doingOf names a request, for what a revision is called.
func doingOf(r *http.Request) string {
	text := r.Method + " " + r.URL.Path[min(len(BaseURL)+1, len(r.URL.Path)):]
	for utf8.RuneCountInString(text) > maxDoing || !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text
}
