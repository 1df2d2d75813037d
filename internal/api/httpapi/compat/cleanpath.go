package compat

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// Cleaned returns a request without a slash at the end of its path, and without empty elements in
// it: the existing loxilb answers those, too.
func Cleaned(r *http.Request) *http.Request {
	escaped := r.URL.EscapedPath()
	clean := path.Clean(escaped)
	plain, err := url.PathUnescape(clean)
	if clean == escaped || !strings.HasPrefix(escaped, "/") || err != nil {
		return r
	}
	c, u := *r, *r.URL
	u.Path, u.RawPath = plain, clean
	c.URL = &u
	return &c
}
